"""Save and load pruned models; read and write model folders."""
