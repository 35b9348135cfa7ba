"""Names that an edit took the value from: read, and no longer bound on the way.

Owns what of two texts is a fault. Code that was unsure before, or is so since it was moved, is none: people
write such code on purpose. A binding that is gone while the name is still read is one.
"""

import ast

from vivace.agent.edits.check.faults.finding import Finding
from vivace.agent.edits.check.faults.unbound import Reads, reads_in
from vivace.agent.edits.repair.imports.python_names import BUILT_IN


def names_without_value(before: ast.Module, after: ast.Module) -> list[Finding]:
    """Return the names that may have no value now and surely had one before."""
    old, new = reads_in(before), reads_in(after)
    found = []
    for where, reads in new.items():
        was = old.get(where)
        found += [
            Finding(f"reads `{name}` before it has a value", where)
            for name in sorted(_never(was, reads, where))
        ]
        found += [
            Finding(f"reads `{name}`, which may have no value: an assignment of it is gone", where)
            for name in sorted(_lost(was, reads))
        ]
    return found


def _never(was: Reads | None, now: Reads, where: str) -> set[str]:
    before = was.never if was else set()
    return now.never - before - (BUILT_IN if not where else frozenset())


def _lost(was: Reads | None, now: Reads) -> set[str]:
    if was is None:
        return set()
    fresh = now.unsure - was.unsure - was.never - now.never
    return {name for name in fresh if now.bound[name] < was.bound[name]}
