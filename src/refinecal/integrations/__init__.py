"""Stopping on refinement in the frameworks that people train with: one module and one extra each.

Import the one you need, as in ``from refinecal.integrations.xgboost import RefinementStopping``.
"""
