"""Change code: `vivace edit`, and `undo` and `redo` of what was written."""
