"""The Responses API without I/O: requests in, events out, and the machine of one connection."""
