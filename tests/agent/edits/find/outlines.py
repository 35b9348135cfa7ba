"""What tests of units share: a Python file with a bit of everything, and the units of a text as lines."""

from pathlib import Path

from vivace.agent.edits.apply.source import SourceFile, source_from_bytes
from vivace.agent.edits.find.languages import language_for
from vivace.agent.edits.find.outline import list_units
from vivace.agent.edits.find.units import Unit


def source_of(name: str, text: str) -> SourceFile:
    return source_from_bytes(Path(name), text.encode())


def units_of(name: str, text: str) -> list[Unit]:
    return list_units(source_of(name, text), language_for(Path(name)))


def shown(name: str, text: str) -> list[str]:
    return [f"{unit.kind} {unit.qualified_name} {unit.lines_text}" for unit in units_of(name, text)]


PYTHON = '''import os

LIMIT = 3

@cache
# why
@other(1)
async def load(a,
               b=1) -> int:
    def inner(): pass
    return 1
    # done

class Täsk(Base):
    """Doc."""
    x = 1

    @property
    def done(self): return self.x

    class Inner:
        def go(self):
            pass

if os.name == "nt":
    def only(): ...
'''
