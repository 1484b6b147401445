"""corral plan serve: GPUs that serve a model within its targets."""
