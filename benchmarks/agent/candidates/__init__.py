"""Parts of benchmarks/agent/edit_candidates.py, in the order in which they run."""
