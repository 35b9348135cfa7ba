"""Whether a model does as it is told in the middle of an answer."""
