"""corral plan model: whether a model fits, and on how many GPUs."""
