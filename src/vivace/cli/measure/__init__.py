"""Measurements: `vivace bench` for speed, `vivace eval` for quality."""
