"""Browsers and editors at the server: the app's files, sessions of browsers, and the way to the face host."""
