"""What is done about an answer that is not good enough."""
