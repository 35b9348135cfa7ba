"""How often an edit does what was asked, and nothing else."""
