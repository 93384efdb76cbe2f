"""How every model is trained: step by step, while a monitor looks at its validation predictions.

``trainer`` has the one loop; ``stages`` (scikit-learn), ``xgboost``, ``lightgbm`` and ``catboost`` train
each kind of estimator. ``table_model`` and the modules it names are the models that ``refinecal fit`` stores.
"""
