"""What an edit may change: the file, its units, and the one that is meant."""
