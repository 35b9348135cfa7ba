"""Law 7 in bad weather: turns end exactly once and leave nothing behind, whatever happens and when."""

import json
import random
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.engine.desk import Desk
from tests.engine.hashing import END, HashRunner
from tests.engine.loop.test_scheduler import APART, FAST, TOGETHER, endless
from tests.engine.loop.test_worker import EngineProcess
from tests.engine.turns.test_drafts import PAYING, repeating
from vivace.engine.kv.parked_cache import ParkedCache
from vivace.engine.wire.frames import (
    Append,
    Close,
    Failed,
    Finished,
    Fork,
    Frame,
    Generate,
    Interrupt,
    Open,
    Park,
    Ready,
    Rewind,
    Score,
    Stats,
    StatsReply,
    ToEngine,
    Tokens,
)

CELLS = 600


class Storm:
    """A client that changes its mind all the time; it knows which turns it has begun and which have ended."""

    def __init__(self, seed: int) -> None:
        print(f"storm with seed {seed}")
        self.random = random.Random(seed)
        self.sessions: dict[str, str] = {}  # by name, the turn begun last
        self.begun: list[str] = []
        self.count = 0

    def fresh(self, kind: str) -> str:
        self.count += 1
        return f"{kind}{self.count}"

    def open(self) -> Open:
        name = self.fresh("s")
        self.sessions[name] = ""
        shared = [7] * self.random.choice([0, 0, 40])
        return Open(name, [*shared, self.random.randrange(60)], self.random.choice(["ann", "bob"]))

    def begin(self) -> ToEngine:
        name, turn = self.random.choice(list(self.sessions)), self.fresh("t")
        self.sessions[name] = turn
        self.begun.append(turn)
        tokens = [self.random.randrange(60) for _ in range(self.random.choice([0, 1, 5, 150]))]
        tier = self.random.choice(["realtime", "background"])
        match self.random.randrange(6):
            case 0:
                return Append(name, turn, tokens, tier)  # type: ignore[arg-type]
            case 1:
                return Append(name, turn, tokens, is_provisional=True)
            case 2:
                return Score(name, turn, tokens, [[1, 2], [3, 4, 5], []], tier)  # type: ignore[arg-type]
        return Generate(name, turn, tokens, max_tokens=self.random.randrange(1, 40), tier=tier)  # type: ignore[arg-type]

    def disturb(self) -> ToEngine:
        name = self.random.choice(list(self.sessions))
        match self.random.randrange(10):
            case 0:
                del self.sessions[name]
                return Close(name)
            case 1:
                return Rewind(name, self.random.randrange(3))
            case 2:
                return Park(name)
            case 3:
                copy = self.fresh("s")
                self.sessions[copy] = ""
                return Fork(copy, name, 1)
        return Interrupt(self.sessions[name])

    def next(self) -> ToEngine:
        if len(self.sessions) < 2 or (len(self.sessions) < 12 and self.random.random() < 0.1):
            return self.open()
        return self.begin() if self.random.random() < 0.5 else self.disturb()


def ends(frames: list[Frame]) -> Counter[str]:
    return Counter(frame.turn for frame in frames if isinstance(frame, Finished | Failed) and frame.turn)


@pytest.mark.parametrize("seed", [random.randrange(2**32) for _ in range(2)], ids=lambda _: "")
@pytest.mark.parametrize("has_parked_cache", [False, True])
def test_a_thousand_interrupts_leave_nothing_behind(
    seed: int, has_parked_cache: bool, tmp_path: Path
) -> None:
    """Between and inside of passes turns are interrupted, sessions closed, cut, forked and parked."""
    storm = Storm(seed)
    parked_cache = ParkedCache(tmp_path, kv_format="hash", limit_bytes=50_000) if has_parked_cache else None
    runner = HashRunner(CELLS, 28, endless)
    desk = Desk(runner, parked_cache)
    disturbances = 0
    while disturbances < 1000:
        coming = [storm.next() for _ in range(storm.random.randrange(4))]
        disturbances += sum(not isinstance(frame, Open | Append | Generate | Score) for frame in coming)
        if not desk.engine.is_idle:
            desk.engine.step(lambda coming=coming: coming)  # type: ignore[misc]
        desk.give(*coming)
    desk.give(*(Close(name) for name in storm.sessions))
    for _ in range(2):
        desk.engine.step()
    desk.give(Stats())
    stats = desk.sent[-1]
    assert isinstance(stats, StatsReply)
    assert (stats.turns, stats.sessions, stats.kv_tokens) == (0, 0, 0)
    assert runner.used_cells() == 0
    assert ends(desk.sent) == Counter(storm.begun)  # type: ignore[arg-type]
    if parked_cache:
        parked_cache.close()


@pytest.mark.parametrize("seed", [random.randrange(2**32)], ids=lambda _: "")
def test_no_token_comes_after_the_end(seed: int) -> None:
    """Whatever happens, a turn that has ended is silent."""
    storm, desk = Storm(seed), Desk(HashRunner(CELLS, 28, endless))
    for _ in range(400):
        desk.give(storm.next())
        if not desk.engine.is_idle:
            desk.engine.step()
    desk.run()
    ended = set()
    for frame in desk.sent:
        if isinstance(frame, Tokens):
            assert frame.turn not in ended
        elif isinstance(frame, Finished | Failed):
            ended.add(frame.turn)


class Client:
    """Knows every log, and so what each turn must say. There is little room, and many logs begin alike."""

    def __init__(self, seed: int, folder: Path) -> None:
        print(f"client with seed {seed}")
        self.random = rng = random.Random(seed)
        self.cells = rng.choice([100, 150, 220, 400])
        self.parked_cache = ParkedCache(folder, kv_format="hash", limit_bytes=rng.choice([2_000, 20_000]))
        self.runner = HashRunner(self.cells, rng.choice([17, 18, 20, 40]), repeating)
        self.desk = Desk(self.runner, rng.choice([None, self.parked_cache]), rng.choice(COSTS))
        self.base = [rng.randrange(60) for _ in range(60)]
        self.logs: dict[str, list[int]] = {}
        self.running: dict[str, ToEngine] = {}
        self.count = 0

    def fresh(self) -> str:
        self.count += 1
        return f"n{self.count}"

    def act(self) -> None:
        rng = self.random
        names = sorted(self.logs)
        if len(names) < 2 or rng.random() < 0.08:
            name = self.fresh()
            self.logs[name] = self.base[: rng.randrange(1, 60)]
            self.desk.give(Open(name, list(self.logs[name]), rng.choice(["ann", "bob"])))
            return
        name = rng.choice(names)
        action = rng.choices(["work", "step", "interrupt", "idle"], [27, 43, 7, 12])[0]
        if action == "work":
            self.work(name)
        elif action == "interrupt" and name in self.running:
            self.desk.give(Interrupt(self.running[name].turn))  # type: ignore[union-attr]
        elif action == "idle" and name not in self.running:
            self.change(name)
        elif action == "step":
            self.step(rng.randrange(6))

    def step(self, count: int) -> None:
        for _ in range(count):
            if not self.desk.engine.is_idle:
                self.desk.engine.step()

    def change(self, name: str) -> None:
        rng, length = self.random, self.random.randrange(1, len(self.logs[name]) + 1)
        match rng.randrange(4):
            case 0:
                self.desk.give(Park(name))
            case 1:
                copy = self.fresh()
                self.desk.give(Fork(copy, name, length))
                self.logs[copy] = self.logs[name][:length]
            case 2:
                self.desk.give(Rewind(name, length))
                del self.logs[name][length:]
            case _:
                self.desk.give(Close(name))
                del self.logs[name]

    def work(self, name: str) -> None:
        rng, log, turn = self.random, self.logs[name], self.fresh()
        is_typing = isinstance(self.running.get(name), Append) and self.running[name].is_provisional  # type: ignore[union-attr]
        tokens = rng.choice([[], self.base[: rng.randrange(20)], self.base[len(log) :][: rng.randrange(30)]])
        if (name in self.running and not is_typing) or len(log) + len(tokens) > self.cells - 16:
            return
        tier = rng.choice(["realtime", "background"])
        guess = replay_repeating(log + tokens, 12) if rng.random() < 0.3 else []
        frame: ToEngine = rng.choice(  # type: ignore[assignment]
            [
                Generate(name, turn, tokens, max_tokens=rng.randrange(1, 14), tier=tier, prediction=guess),  # type: ignore[arg-type]
                Generate(name, turn, tokens, max_tokens=9, tier=tier, use_drafts=False),  # type: ignore[arg-type]
                Append(name, turn, tokens, tier=tier),  # type: ignore[arg-type]
                Append(name, turn, tokens, is_provisional=True),
                Score(name, turn, tokens, [[1, 2], [3], [4, 5, 6]], tier=tier),  # type: ignore[arg-type]
            ]
        )
        self.desk.give(frame)
        self.running[name] = frame
        if not (isinstance(frame, Append) and frame.is_provisional):
            self.logs[name] = log + tokens

    def look(self) -> None:
        """Whatever has ended must have said what a replay says."""
        for name, frame in list(self.running.items()):
            turn = frame.turn  # type: ignore[union-attr]
            if turn not in ends(self.desk.sent):  # type: ignore[arg-type]
                continue
            del self.running[name]
            end = self.desk.finished(turn)
            if name in self.logs and isinstance(frame, Generate):
                log, said = self.logs[name], self.desk.tokens(turn)
                truth = replay_repeating(log, frame.max_tokens)
                assert said == truth[: len(said)]
                assert end.reason == "interrupted" or said == truth or len(log) + len(said) == self.cells
                self.logs[name] = log + said


def replay_repeating(log: list[int], count: int) -> list[int]:
    said: list[int] = []
    while len(said) < count and END not in said:
        said.append(int(repeating(log + said).argmax()))
    return said


COSTS: list[dict[int, float]] = [PAYING, APART, FAST, TOGETHER]


@pytest.mark.parametrize("seed", [*range(8), *(random.randrange(2**32) for _ in range(8))], ids=lambda _: "")
def test_what_is_said_with_little_room_is_what_a_replay_says(seed: int, tmp_path: Path) -> None:
    """Turns that share, lose and regain their room say the same as alone, and every one of them ends."""
    client = Client(seed, tmp_path)
    for _ in range(250):
        client.act()
        client.look()
    client.step(3000)
    client.look()
    assert client.desk.engine.is_idle
    assert not client.running
    assert set(ends(client.desk.sent).values()) == {1}  # type: ignore[arg-type]
    client.parked_cache.close()


def start_process(tmp_path: Path) -> EngineProcess:
    script = tmp_path / "script.json"
    script.write_text(json.dumps({"replies": {"": "x" * 500}, "step_ms": 1, "prefill_token_ms": 1}))
    engine = EngineProcess(f"scripted:{script}")
    engine.next(Ready)
    return engine


def test_a_process_survives_a_hundred_interrupts(tmp_path: Path) -> None:
    """Frames at any moment of a real process: every turn ends once, and the KV is empty at the end."""
    storm, engine = Storm(random.randrange(2**32)), start_process(tmp_path)
    seen: list[Frame] = []
    disturbances = 0
    while disturbances < 100:
        frame = storm.next()
        disturbances += not isinstance(frame, Open | Append | Generate | Score)
        engine.send(frame)
        if storm.random.random() < 0.3:
            time.sleep(storm.random.random() * 0.01)  # the weather, not a wait: any moment may be hit
    engine.send(*(Close(name) for name in storm.sessions), Stats())
    while not isinstance(seen[-1] if seen else None, StatsReply):
        seen.append(engine.next(Frame))  # type: ignore[type-var]
    stats = seen[-1]
    assert isinstance(stats, StatsReply)
    assert (stats.turns, stats.sessions, stats.kv_tokens) == (0, 0, 0)
    assert ends(seen) == Counter(storm.begun)
    engine.close()


def test_a_process_ends_when_its_server_does_at_any_moment(tmp_path: Path) -> None:
    """The socket is closed after so many frames of the answer, or before any: the process ends with 0."""
    for frames in (0, 1, 3, 9):
        engine = start_process(tmp_path)
        engine.send(Open("a"), Open("b"))
        engine.send(Generate("a", "t", [65], max_tokens=400), Append("b", "u", [66] * 1500))
        for _ in range(frames):
            engine.next(Frame)  # type: ignore[type-var]
        engine.link.close()
        assert engine.process.wait(30) == 0
        assert engine.process.stderr is not None
        assert engine.process.stderr.read() == ""
        engine.process.stderr.close()
