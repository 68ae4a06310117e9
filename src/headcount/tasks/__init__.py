"""Data in, metric out: one file per kind of task."""
