"""The tuner's child processes: a variant may crash or hang there and end nothing else."""
