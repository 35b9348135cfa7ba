"""Names that an edit took the value from: read, and no longer bound on the way.

Owns what of two texts is a fault. Code that was unsure before, or is so since it was moved, is none: people
write such code on purpose. A binding that is gone while the name is still read is one.
"""

import ast

from vivace.agent.edits.check.faults.finding import Finding
from vivace.agent.edits.check.faults.unbound import Reads, functions_in, reads_in
from vivace.agent.edits.repair.imports.python_names import BUILT_IN


def names_without_value(before: str, old_tree: ast.Module, after: str, new_tree: ast.Module) -> list[Finding]:
    """Return the names that may have no value now and surely had one before, in functions that differ."""
    was, now = _texts(before, old_tree), _texts(after, new_tree)
    differing = [name for name, text in now.items() if was.get(name) != text]
    old, new = reads_in(old_tree, differing), reads_in(new_tree, differing)
    found = []
    for where, reads in new.items():
        known = old.get(where)
        found += [
            Finding(f"reads `{name}` before it has a value", where)
            for name in sorted(_never(known, reads, where))
        ]
        found += [
            Finding(f"reads `{name}`, which may have no value: an assignment of it is gone", where)
            for name in sorted(_lost(known, reads))
        ]
    return found


def _texts(text: str, tree: ast.Module) -> dict[str, list[str]]:
    """Return the lines of each function."""
    lines = text.split("\n")
    return {name: lines[node.lineno - 1 : node.end_lineno] for name, node in functions_in(tree)}


def _never(was: Reads | None, now: Reads, where: str) -> set[str]:
    before = was.never if was else set()
    return now.never - before - (BUILT_IN if not where else frozenset())


def _lost(was: Reads | None, now: Reads) -> set[str]:
    if was is None:
        return set()
    fresh = now.unsure - was.unsure - was.never - now.never
    return {name for name in fresh if now.bound[name] < was.bound[name]}
