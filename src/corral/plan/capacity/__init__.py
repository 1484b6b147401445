"""corral plan capacity: how many GPUs will be needed."""
