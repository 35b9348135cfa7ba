"""Which parts of a repository an instruction is about, before a model is asked.

In the order data passes: `listing`, `clues` of the text, `index` of the files, `unit_words` of the best,
`ranking`. Owns no model: `find.locate` and a conversation let it score what comes first here.
"""
