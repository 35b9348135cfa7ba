"""`vivace launch`: other coding clients (Claude Code, Codex …) on our server, configured privately."""
