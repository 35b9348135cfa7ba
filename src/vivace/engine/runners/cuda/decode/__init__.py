"""Passes over a few tokens, planned, captured once and replayed."""
