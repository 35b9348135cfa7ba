"""The pure half of an edit: find the unit, read the answer, splice it back, check it, be able to undo it.

In the order data passes: target, source, languages, naming, units, outline, answer, livediff, tidy, verify,
journal, replacing. Owns no network, no model, no terminal: the caller ranks units, prompts and draws.
"""
