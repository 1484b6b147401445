"""corral plan train: layouts, step time and cost of a training run."""
