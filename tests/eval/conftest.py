"""The server with a scripted model, as the server's own tests have it."""

from tests.server.conftest import address, served

__all__ = ["address", "served"]
