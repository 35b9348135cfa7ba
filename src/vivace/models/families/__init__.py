"""Families of models, one module each. `base` has the protocols."""
