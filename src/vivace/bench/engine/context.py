"""What every measure of `vivace bench engine` gets: prompts, rows, effort and progress.

Owns tenants, so that sessions share nothing by chance. Does not own engines.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from vivace.bench.engine.effort import Effort
from vivace.bench.engine.engine_process import EngineProcess
from vivace.bench.engine.prompts import Prompts
from vivace.bench.progress import Progress
from vivace.bench.rows import EditCase

Section = dict[str, Any]  # what one measure adds to the report


@dataclass
class BenchContext:
    effort: Effort
    prompts: Prompts
    cases: list[EditCase]
    end_tokens: list[int]
    progress: Progress
    _tenants: Iterator[int] = field(default_factory=count)

    @contextmanager
    def cold_session(self, engine: EngineProcess) -> Iterator[str]:
        """Open a session of a new tenant: nothing of its prompt is in memory or on disk."""
        with engine.session(tenant=f"cold-{next(self._tenants)}") as session:
            yield session
