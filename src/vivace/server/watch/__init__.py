"""What the server shows of its work: log, metrics, traces."""
