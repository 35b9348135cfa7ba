"""What can answer a request: our own engine (`native`) or any OpenAI-compatible URL (`upstream`)."""
