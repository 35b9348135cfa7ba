"""The server of this user: `vivace serve`, `status`, `stop`, and `keys` for others."""
