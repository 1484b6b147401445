"""The Slurm engine: attempts become batch jobs, on nodes that Slurm manages."""
