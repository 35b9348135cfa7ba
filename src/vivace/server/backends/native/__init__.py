"""Our own engine behind the Responses API."""
