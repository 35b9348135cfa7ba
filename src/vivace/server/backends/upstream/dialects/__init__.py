"""The two APIs that upstreams speak: what they are sent, and how their answers are read."""
