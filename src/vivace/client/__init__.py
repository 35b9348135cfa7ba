"""The one client of the server, used by everything else that we write."""
