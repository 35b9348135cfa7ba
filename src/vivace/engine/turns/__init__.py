"""One request on a session: append, generate or score."""
