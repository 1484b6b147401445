"""Nodes that a batch system lends by the attempt: what slurm and kubernetes have in
common."""
