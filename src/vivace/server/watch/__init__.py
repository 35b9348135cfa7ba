"""What is told to those who watch the server: log, metrics, traces."""
