"""A conversation about code: its turns, its transcript, and what the user may do to them."""
