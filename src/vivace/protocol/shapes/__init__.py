"""What goes over the wire: requests, items, tools, events, errors. OpenAI's types and our additions."""
