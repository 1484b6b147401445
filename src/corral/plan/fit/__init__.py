"""corral plan model: whether a model fits, and in how many GPUs."""
