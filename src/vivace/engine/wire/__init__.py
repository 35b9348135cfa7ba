"""What the server may import of the engine: the frames between them, and what an engine is started for."""
