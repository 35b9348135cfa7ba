"""`vivace bench team`: several users of one server at once, each on a socket of its own."""
