"""Stand-ins for an engine where timing or failure must be controlled.

Refused unless the settings allow them.
"""
