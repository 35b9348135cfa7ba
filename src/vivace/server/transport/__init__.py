"""Sockets, HTTP routes, and who may come in."""
