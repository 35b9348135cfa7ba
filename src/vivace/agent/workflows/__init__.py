"""Recipes of several steps, each with a check: found, filled in, run, and taken up again where they ended."""
