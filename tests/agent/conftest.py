"""The flow is tested against the server's own fixtures: a real server with a scripted model."""

from tests.server.conftest import address, served, smol_address, smol_served

__all__ = ["address", "served", "smol_address", "smol_served"]
