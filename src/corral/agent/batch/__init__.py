"""A batch script on its nodes: the first runs it, the others wait for its steps
(srun)."""
