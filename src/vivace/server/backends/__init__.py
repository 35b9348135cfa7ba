"""What can answer a request: so far only our own engine (`native`)."""
