"""Checkers of others, where they are installed."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from vivace.agent.edits.apply.source import SourceFile


class Tools:
    def __init__(self, sources: Sequence[SourceFile]) -> None:
        self._sources = sources

    def faults(self, after: Mapping[Path, str], but: Sequence[str] = ()) -> list[str]:
        return []
