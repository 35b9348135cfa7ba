"""What a realtime turn loses to four background turns on the same engine: two that write, two that read.

Owns what is sent and how much. Alone and beside take turns in one run. Does not start the engine, and does
not judge: see `report`.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import count, pairwise

from vivace.bench.engine.context import Section
from vivace.bench.engine.engine_process import EngineProcess, Turn
from vivace.bench.figures import median, ratio
from vivace.bench.progress import Progress
from vivace.engine.wire.frames import Generate

PARTS = ("warm up", "alone and beside")
WRITERS, READERS = 2, 2  # background turns: those that generate, and those that read a long prompt
LOOK_S = 0.05  # between two looks whether the background turns are in the middle of their work


@dataclass(frozen=True)
class Effort:
    rounds: int
    tokens: int  # that the realtime turn says
    reading_tokens: int  # of the prompt that a background turn reads
    seconds: tuple[int, ...]  # for each of PARTS, on two x86 cores


FULL = Effort(rounds=9, tokens=60, reading_tokens=3000, seconds=(10, 190))
QUICK = Effort(rounds=3, tokens=60, reading_tokens=3000, seconds=(10, 65))


@dataclass(frozen=True)
class Texts:
    """Prompts as tokens."""

    ask: Callable[[], list[int]]  # a new prompt with a long answer
    read: Callable[[int], list[int]]  # a new prompt of this length


@dataclass
class TempoBench:
    engine: EngineProcess
    texts: Texts
    effort: Effort
    _tenants: Iterator[int] = field(default_factory=count)

    def run(self, progress: Progress) -> Section:
        """Measure realtime turns alone and beside background turns, in turns."""
        progress.begin("warm up")
        self._realtime()
        progress.begin("alone and beside")
        alone, beside, meanwhile = [], [], []
        for number in range(self.effort.rounds):
            progress.note(f"round {number + 1} of {self.effort.rounds}")
            alone.append(self._realtime())
            turn, said = self._beside()
            beside.append(turn)
            meanwhile.append(said)
        progress.end()
        return {
            "token_ratio": ratio(_token_ms(beside), _token_ms(alone)),
            "first_token_ratio": ratio(_first_token_ms(beside), _first_token_ms(alone)),
            "alone": _figures(alone),
            "beside": _figures(beside),
            "background_turns": WRITERS + READERS,
            "background_tokens_meanwhile": median(meanwhile),
            "rounds": self.effort.rounds,
        }

    def _realtime(self) -> Turn:
        with self.engine.session(tenant=self._tenant()) as session:
            prompt = self.texts.ask()
            return self.engine.run(
                Generate(session, "", prompt, max_tokens=self.effort.tokens, use_drafts=False)
            )

    def _beside(self) -> tuple[Turn, int]:
        """Run a realtime turn beside background turns. Return it and the tokens of the others meanwhile."""
        with ExitStack() as sessions:
            writers = [self._begin(sessions, self.texts.ask()) for _ in range(WRITERS)]
            while not all(turn.tokens or turn.is_over for turn in writers):
                self.engine.watch(LOOK_S)
            reading_tokens = min(self.effort.reading_tokens, self.engine.limit_tokens // 2)
            readers = [self._begin(sessions, self.texts.read(reading_tokens)) for _ in range(READERS)]
            self.engine.watch(LOOK_S)
            background = writers + readers
            said = sum(len(turn.tokens) for turn in background)
            turn = self._realtime()
            said = sum(len(turn.tokens) for turn in background) - said
            for each in background:
                if not each.is_over:
                    self.engine.interrupt(each)
        return turn, said

    def _begin(self, sessions: ExitStack, prompt: list[int]) -> Turn:
        session = sessions.enter_context(self.engine.session(tenant=self._tenant()))
        room = self.engine.limit_tokens - len(prompt)
        return self.engine.begin(
            Generate(session, "", prompt, max_tokens=min(2000, room), use_drafts=False, tier="background")
        )

    def _tenant(self) -> str:
        """Return a new tenant: sessions share no prefix by chance."""
        return f"tempo-{next(self._tenants)}"


def _token_ms(turns: list[Turn]) -> float:
    return median([turn.token_ms for turn in turns])


def _first_token_ms(turns: list[Turn]) -> float:
    return median([turn.first_token_ms for turn in turns])


def _figures(turns: list[Turn]) -> Section:
    gaps = [max((b - a for a, b in pairwise(turn.arrived_s)), default=0.0) * 1e3 for turn in turns]
    return {
        "token_ms": _token_ms(turns),
        "first_token_ms": _first_token_ms(turns),
        "queue_ms": median([turn.waterfall.queue_ms for turn in turns]),
        "prefill_ms": median([turn.waterfall.prefill_ms for turn in turns]),
        "longest_gap_ms": median(gaps),
        "tokens": median([len(turn.tokens) for turn in turns]),
    }
