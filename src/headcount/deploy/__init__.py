"""Hand a model, pruned or not, to other engines: ONNX graphs and programs of `torch.export`."""
