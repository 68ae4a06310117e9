"""What all figures share, and the map of heads; knows nothing of runs and studies."""
