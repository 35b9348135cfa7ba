"""The search for the fastest variant of a model file: what is tried, measured and chosen."""
