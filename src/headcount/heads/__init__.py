"""FIND: what heads a model has."""
