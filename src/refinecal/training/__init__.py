"""How each kind of classifier is trained step by step, and stopped.

A :class:`~refinecal.training.task.TrainingMethod` trains a new model while a monitor looks on, and retrains
one for a known number of steps. ``kinds`` finds the method of a model; next to models that are fitted
once there are ``passes``, ``stages``, ``callbacks`` (XGBoost, LightGBM) and ``catboost``.
"""
