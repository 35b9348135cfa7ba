"""A conversation that several faces have open at once: one process holds it, the others are attached."""
