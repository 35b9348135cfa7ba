"""`vivace bench engine`: the engine beside plain llama.cpp."""
