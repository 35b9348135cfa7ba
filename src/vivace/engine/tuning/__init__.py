"""Which weights, threads and chunks this machine runs a model best with."""
