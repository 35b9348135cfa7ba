"""Passes over rows of several sequences: one token of each, its own pages, position and sampling."""
