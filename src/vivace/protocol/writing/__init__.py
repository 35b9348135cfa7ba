"""A turn written as events."""
