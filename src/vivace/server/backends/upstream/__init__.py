"""Any OpenAI-compatible URL as a backend."""
