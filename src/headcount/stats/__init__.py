"""Is a difference more than chance? Tests and numbers; knows nothing of runs and studies."""
