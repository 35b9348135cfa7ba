"""The engine's process: frames in, one pass at a time, frames out."""
