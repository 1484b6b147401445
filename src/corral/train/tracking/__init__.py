"""Experiment trackers (Weights & Biases, MLflow, TensorBoard): one run for all attempts
of a job."""
