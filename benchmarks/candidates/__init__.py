"""Parts of benchmarks/edit_candidates.py, in the order in which they run."""
