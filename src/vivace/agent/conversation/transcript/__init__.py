"""The transcript: its schema, its file, and what its lines add up to."""
