"""What Slurm's users write: options, #SBATCH lines, lists of hosts, times, names of files. Pure."""
