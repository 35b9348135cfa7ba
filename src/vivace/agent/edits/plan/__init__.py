"""Which units an edit rewrites when one is not enough, and in which order."""
