"""Which nodes and GPUs a gang is given."""
