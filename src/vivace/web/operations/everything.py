"""All operations: importing this fills the table."""

from vivace.web.operations import arriving, figures, files, listing, talking, tasks

__all__ = ["arriving", "figures", "files", "listing", "talking", "tasks"]
