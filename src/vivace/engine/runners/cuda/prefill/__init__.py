"""Passes over many tokens: chunks of a prompt."""
