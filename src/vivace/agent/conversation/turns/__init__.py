"""One turn of a conversation: what is sent for a message, and what comes of it: an answer, an edit, calls."""
