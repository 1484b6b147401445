"""Syntax of Slurm: options, #SBATCH lines, host lists, times, file names. Pure."""
