"""The style that all figures share, and the map of heads."""
