"""The syntax of Slurm: options, #SBATCH lines, host lists, times, file names. No I/O."""
