"""How each kind of classifier is trained step by step, and stopped.

A :class:`~refinecal.training.task.Kind` knows how to train a new model while a monitor looks on, and how to
train one again for a known number of steps. ``kinds`` finds the kind of a model; beside models that are
fitted once there are ``passes``, ``stages``, ``callbacks`` (XGBoost, LightGBM) and ``catboost``.
"""
