"""One piece of work on a session: append, generate or score."""
