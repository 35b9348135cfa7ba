"""Tasks in the background: each with a log, a workplace and a process of its own."""
