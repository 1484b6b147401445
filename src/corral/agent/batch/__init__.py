"""A batch script on the nodes of its job: the first node runs the script, and the other
nodes wait for its steps (srun)."""
