"""Sessions in any order of operations, with a runner whose next token is a hash of its whole KV."""

from typing import ClassVar

from hypothesis import settings
from hypothesis.stateful import invariant

from tests.engine.hashing import HashRunner
from tests.engine.kv.sessions_machine import SessionsMachine
from tests.engine.loop.test_engine import replay
from tests.thorough import examples
from vivace.engine.runners.base import MemoryKind


class HashMachine(SessionsMachine):
    memory: ClassVar[MemoryKind] = "exact"
    sequences = 4  # one of them for scores
    runner: HashRunner

    def make_runner(self) -> HashRunner:
        return HashRunner(self.cells, self.sequences, memory=self.memory)

    def replay(self, log: list[int], count: int) -> list[int]:
        return replay(log, count)

    @invariant()
    def no_cell_is_lost(self) -> None:
        """An idle engine holds cells for open sessions only: no more than their logs, none in scratch."""
        held = [[cell.token for cell in cells] for cells in self.runner.kv.values() if cells]
        sessions = self.sequences - self.sequences // 4
        assert len(held) <= (min(len(self.logs), sessions) if self.memory == "exact" else sessions)
        texts = [log + self.typed.get(name, []) for name, log in self.logs.items()]
        assert all(any(text[: len(tokens)] == tokens for text in texts) for tokens in held)

    @invariant()
    def the_parked_cache_keeps_to_its_limit(self) -> None:
        assert self.parked_cache.disk_bytes <= self.most_parked_bytes


class CheckpointsMachine(HashMachine):
    """The same with a memory that cannot be cut: sessions go back to checkpoints, or read again."""

    memory: ClassVar[MemoryKind] = "checkpoints"
    sequences = 9


HashMachine.TestCase.settings = settings(max_examples=examples(50), stateful_step_count=40)
CheckpointsMachine.TestCase.settings = HashMachine.TestCase.settings
TestSessions = HashMachine.TestCase
TestCheckpoints = CheckpointsMachine.TestCase
