"""Vivace in other programs: `vivace acp`, `mcp`, `editors`."""
