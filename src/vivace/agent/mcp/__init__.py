"""Tools of other programs (MCP servers) for our models, and our tools for other programs."""
