"""Choice of nodes and GPUs for a gang."""
