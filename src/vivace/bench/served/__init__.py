"""A server of the bench's own, and clients on blocking sockets that measure turns on it."""
