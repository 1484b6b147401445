"""Slurm's commands over a Corral cluster: sbatch, srun, squeue, scancel, sinfo, sacct,
scontrol."""
