"""The answer made fit for its place, and whether it may be written."""
