"""Speed, memory and size of models, beside one another."""
