"""Sessions: token logs and how much of each is in the KV, in memory or on disk."""
