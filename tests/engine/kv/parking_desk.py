"""What tests of parking share: a folder, and the engines that use it one after the other."""

from pathlib import Path

from tests.engine.desk import Desk
from tests.engine.hashing import HashRunner
from tests.engine.loop.test_scheduler import endless
from vivace.engine.kv.parked_cache import ParkedCache
from vivace.engine.wire.frames import Generate, Open, Waterfall

PROMPT = [i % 60 for i in range(100)]
RULES = [i * 7 % 61 for i in range(200)]  # what an agent's sessions begin with


class Place:
    """One folder, and the engines that use it one after the other."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.parked_caches: list[ParkedCache] = []

    def start(self, context_tokens: int = 2048, limit_bytes: int = 1_000_000) -> Desk:
        parked_cache = ParkedCache(self.folder, kv_format="hash", limit_bytes=limit_bytes)
        self.parked_caches.append(parked_cache)
        return Desk(HashRunner(context_tokens, 64, endless), parked_cache)

    def restart(self, **wishes: int) -> Desk:
        self.parked_caches[-1].close()
        return self.start(**wishes)

    def files(self, kind: str = "session") -> list[Path]:
        self.parked_caches[-1].flush()
        return sorted(self.folder.glob(f"*/*/*.{kind}"))


def say(desk: Desk, session: str, tokens: list[int], count: int = 4) -> tuple[list[int], Waterfall]:
    turn = f"{session}/{len(desk.sent)}"
    desk.run(Generate(session, turn, list(tokens), max_tokens=count, use_drafts=False))
    return desk.tokens(turn), desk.finished(turn).waterfall


def alone(log: list[int], count: int = 4) -> list[int]:
    """What an engine that never parked anything says after `log`."""
    desk = Desk(HashRunner(2048, 64, endless))
    desk.give(Open("s"))
    return say(desk, "s", log, count)[0]


def tokens_in(file: Path) -> list[int]:
    parked_cache = ParkedCache(file.parent.parent.parent, kv_format="hash", limit_bytes=1_000_000)
    (parked,) = [each for each in parked_cache._parked.values() if each.path == file]
    parked_cache.close()
    return list(parked.tokens)
