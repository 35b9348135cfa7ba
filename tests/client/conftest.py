"""The client is tested against the server's own fixtures: real servers with scripted models."""

from tests.server.conftest import address, served, start

__all__ = ["address", "served", "start"]
