"""What is on this machine: `vivace models`, `extras`, `doctor`, `completion`."""
