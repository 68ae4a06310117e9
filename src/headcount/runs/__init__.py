"""One run from a model and data to a smaller model: train, choose, cut, check, measure, write."""
