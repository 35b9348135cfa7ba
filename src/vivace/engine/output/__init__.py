"""Which token comes next: sampling, and grammars that say which may."""
