"""Slurm's commands for a Corral cluster: sbatch, srun, squeue, scancel, sinfo, sacct,
scontrol."""
