"""A turn told as events."""
