"""Hand over a model, pruned or not, to other engines: as ONNX or as `torch.export` programs."""
