"""Nodes that a batch system provides for single attempts: the common part of the
engines for Slurm and Kubernetes."""
