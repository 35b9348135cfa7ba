"""`vivace bench wire`: what the way between a client and the engine costs, on loopback."""
