"""The engine: its own process, with the KV, drafts, sampling, and who runs next."""
