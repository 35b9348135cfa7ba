"""gpt-oss: messages with channels."""
