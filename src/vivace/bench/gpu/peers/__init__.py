"""Other programs on the same GPU, each asked for its best in a process of its own."""
