"""What a face asks about models, speeds and kept results.

Owns the shapes. Does not own how they are measured.
"""

from vivace.web.messages.request import Request


class ModelsList(Request, frozen=True, tag="models.list"):
    """List the models that can answer."""


class MetricsRead(Request, frozen=True, tag="metrics.read"):
    """Return how fast the server was over the last hour."""


class ResultsList(Request, frozen=True, tag="results.list"):
    """Return the results of `vivace bench` and `vivace eval` that were kept, the newest first."""

    limit: int = 100
