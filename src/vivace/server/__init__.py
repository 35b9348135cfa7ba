"""The server: sockets, auth and token logs in front of one engine process."""
