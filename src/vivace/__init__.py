"""Vivace: real-time coding on your own machine."""

__version__ = "0.1.0"
