"""The coding companion: a client of the server like any other."""
