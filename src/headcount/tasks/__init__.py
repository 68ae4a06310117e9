"""Data in, metric out: one file per kind of task, and the readers of data that they share."""
