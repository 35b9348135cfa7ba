"""`vivace launch`: coding clients of others on our server, with a configuration of their own."""
