"""`vivace bench tempos`: a realtime turn beside background turns, and alone."""
