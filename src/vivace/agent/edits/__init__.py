"""One edit: `flow` runs it, `edit` gets to a `proposal`.

In the order data passes: find/ the unit, write/ (prompt and answer), check/ the result, apply/ it to the
file. Owns no network and no terminal: the model is `agent.model`, a face is a `presenter`.
"""
