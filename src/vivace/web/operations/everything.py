"""All operations: importing this fills the table."""

from vivace.web.operations import arriving, edits, figures, files, listing, talking, tasks

__all__ = ["arriving", "edits", "figures", "files", "listing", "talking", "tasks"]
