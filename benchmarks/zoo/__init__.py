"""Tiny, randomly initialised models of every class that `transformers` registers."""
