"""A runner that plays a script: for tests and benchmarks where timing or failure must be controlled.

Owns no model: it "predicts" the bytes of a reply, one token a byte, after whatever prompt. It keeps the
same books as a real runner (positions per sequence), so that a KV mistake of the engine's shows.
"""

import contextlib
import mmap
import os
import signal
import time
from collections.abc import Iterable, Sequence
from itertools import accumulate
from pathlib import Path

import msgspec
import numpy as np

from vivace.engine.runners.base import KVFull, KVState, Logits, ModelInfo, ShouldStop, Span, Stopped, TellRead
from vivace.models.tokenizer import scripted_tokenizer

ASK_S = 0.005
OPENING = b"assistant\n"
IDLE_S = 0.1  # nothing ran for so long: what was late is not made up for


class Script(msgspec.Struct, forbid_unknown_fields=True):
    """`replies`: the first whose key occurs in the prompt's text answers; "" answers everything."""

    replies: dict[str, str] = {}
    steps: list[str] = []  # the model's messages in a conversation, one after the other; then `replies`
    step_ms: float = 0.0  # each pass takes this long
    prefill_token_ms: float = 0.0  # and this for every token beyond the first
    linger_after: int = 0  # bytes: a longer reply lingers from there on, for a test to interrupt it
    linger_ms: float = 0.0  # each pass takes this long then, unless it serves another reply; 0: none
    die_at_token: int = -1  # kill -9 itself once, when this many tokens of a reply are out
    die_mark: str = ""  # a file that remembers that it has died
    context_tokens: int = 4096
    is_paced: bool = False  # passes end on a raster: one that ends late does not delay those after it
    pass_tokens: int = 512
    draft_tokens: int = 63
    rows: int = 0  # sample as a GPU does, this many sequences in a pass; see `scripted_rows`
    stamps: str = ""  # a file: when each byte of each reply was made; see `Stamps`
    vocabulary: str = ""  # a GGUF file whose tokens are spoken instead of bytes
    family: str = "chatml"  # whose chat format is spoken; see `models.families.choose`
    load_ms: float = 0.0  # loading takes this long
    is_stuck: bool = False  # and does nothing meanwhile
    load_file: str = ""  # and until this file is `load_bytes` long: its size is what is read
    load_bytes: int = 0
    is_deaf: bool = False  # a pass does not ask whether it is still wanted
    is_engineless: bool = False  # no runner in an engine, but frames on their own; see `engine.player`

    def reply_to(self, prompt: str) -> tuple[int, str]:
        """Return the index of the reply and its text, or -1 and "" if there is none for this prompt."""
        each = enumerate(self.replies.items())
        return next(((row, reply) for row, (key, reply) in each if key in prompt), (-1, ""))


class Stamps:
    """When tokens were made, for another process to read: a row a reply, a `monotonic_ns` a byte of it."""

    def __init__(self, file: Path, replies: Iterable[str]) -> None:
        lengths = [len(reply.encode()) for reply in replies]
        self._columns = max(lengths, default=0) + 1  # and one for the end
        file.write_bytes(bytes(8 * self._columns * max(1, len(lengths))))
        with file.open("r+b") as opened:
            self._cells = memoryview(mmap.mmap(opened.fileno(), 0)).cast("q")

    @classmethod
    def of(cls, script: Script) -> "Stamps | None":
        return cls(Path(script.stamps), script.replies.values()) if script.stamps else None

    def put(self, row: int, column: int) -> None:
        """Now; a reply that is not in the script has no row."""
        if row >= 0:
            self._cells[row * self._columns + column] = time.monotonic_ns()


class Answer:
    """Which reply a sequence gives, and how far it is. Kept, or every token would read the whole prompt."""

    def __init__(self, row: int, tokens: dict[int, int], message: bytes, read: int) -> None:
        self.row = row  # of the reply, in the script's order
        self.tokens = tokens  # of the reply, by where each begins in it
        self.length = max(tokens, default=-1) + 1
        self.read = read  # tokens of the sequence that are counted in `said`
        self.said = len(message.removeprefix(OPENING))  # bytes of the answer that are there
        self.is_begun = len(message) >= len(OPENING)  # or else some of them may be the opening's


class ScriptedRunner:
    def __init__(self, script: Script, tell: TellRead = lambda _read, _total: None) -> None:
        self._script = script
        _load(script, tell)
        self._tokenizer = scripted_tokenizer(script.vocabulary)
        self._start, self._end = map(self._tokenizer.control, ("<|im_start|>", "<|im_end|>"))
        self._gap = self._tokenizer.control("<|fim_middle|>") if not script.vocabulary else -1
        self._kv: dict[int, list[int]] = {}  # per sequence: the tokens whose KV would be held
        self._answers: dict[int, Answer] = {}
        self._due = self._ended = 0.0
        self._stamps = Stamps.of(script)
        self.info = ModelInfo(
            name="scripted",
            context_tokens=script.context_tokens,
            trained_tokens=script.context_tokens,
            sequences=64,
            vocab_size=self._tokenizer.size,
            end_tokens=self._tokenizer.end_tokens,
            threads=1,
            can_stop=True,
            kv_format="scripted",
            pass_tokens=script.pass_tokens,
            draft_tokens=script.draft_tokens,
        )

    def forward(self, spans: Sequence[Span], should_stop: ShouldStop | None = None) -> Logits:
        count = sum(len(span.tokens) for span in spans)
        if not self.has_room(count):
            raise KVFull
        step_ms = self._script.linger_ms if self._lingers(spans) else self._script.step_ms
        self._pass((step_ms + self._script.prefill_token_ms * (count - 1)) / 1e3, should_stop)
        return self.logits(spans)

    def has_room(self, tokens: int) -> bool:
        return sum(map(len, self._kv.values())) + tokens <= self.info.context_tokens

    def held_for(self, span: Span) -> list[int]:
        """Return what the span's sequence holds. End the process if the span does not follow it.

        That is a mistake of the engine's own, and an exception would be taken for one of a turn.
        """
        held = self._kv.setdefault(span.seq, [])
        if span.start != len(held):
            raise SystemExit(f"hole in the KV: {span.start} after {len(held)}")
        return held

    def logits(self, spans: Sequence[Span]) -> Logits:
        rows = []
        for span in spans:
            held = self.held_for(span)
            for offset, token in enumerate(span.tokens):
                held.append(token)
                if offset >= len(span.tokens) - span.want:
                    rows.append(self._row(span.seq, held))
        return np.stack(rows) if rows else np.empty((0, self.info.vocab_size), np.float32)

    def _lingers(self, spans: Sequence[Span]) -> bool:
        if not self._script.linger_ms:
            return False
        answers = [self._answers.get(span.seq) for span in spans]
        return all(answer is not None and answer.said > self._script.linger_after for answer in answers)

    def _pass(self, seconds: float, should_stop: ShouldStop | None) -> None:
        """Take that long, or until it should stop."""
        end = self._end_of_pass(seconds)
        should_stop = None if self._script.is_deaf else should_stop
        while (left := end - time.perf_counter()) > 0:
            if should_stop and should_stop():
                raise Stopped
            time.sleep(min(left, ASK_S) if should_stop else left)
        self._due, self._ended = end, time.perf_counter()

    def _end_of_pass(self, seconds: float) -> float:
        now = time.perf_counter()
        has_rested = now - self._ended > IDLE_S
        return (self._due if self._script.is_paced and not has_rested else now) + seconds

    def _row(self, seq: int, held: list[int]) -> Logits:
        """Logits whose maximum is the next byte of the reply."""
        row = np.zeros(self.info.vocab_size, np.float32)
        row[self._next(seq, held)] = 10.0
        return row

    def _next(self, seq: int, held: list[int]) -> int:
        answer = self._answers.get(seq)
        if answer is None or self._start in (fresh := held[answer.read :]):
            answer = self._answer(held)
            if answer.is_begun:
                self._answers[seq] = answer
        else:
            answer.said += len(self._text(fresh))
            answer.read = len(held)
        if answer.said == self._script.die_at_token and self._script.die_mark:
            self._die_once(Path(self._script.die_mark))
        if self._stamps and answer.said <= answer.length:
            self._stamps.put(answer.row, answer.said)
        return answer.tokens.get(answer.said, self._end)

    def _answer(self, held: list[int]) -> Answer:
        """Return the reply to what stands before the last message of the sequence, which is the answer."""
        if self._gap in held:
            begun = held.index(self._gap) + 1
            row, reply = self._script.reply_to(self._text(held).decode("utf-8", "replace"))
            said = said_of(reply.encode(), self._text(held[begun:]))
            answer = Answer(row, self._tokens(reply), OPENING + said, len(held))
            answer.is_begun = False  # what was typed and what was said cannot be told apart by counting
            return answer
        begun = len(held) - held[::-1].index(self._start) if self._start in held else 0
        before = held[: max(begun - 1, 0)]
        if self._script.steps and (step := self._messages(before)) < len(self._script.steps):
            row, reply = -1, self._script.steps[step]
        else:
            row, reply = self._script.reply_to(self._text(before).decode("utf-8", "replace"))
        return Answer(row, self._tokens(reply), self._text(held[begun:]), len(held))

    def _messages(self, held: list[int]) -> int:
        """Return the number of messages that the model has said so far, with those that were steered away."""
        starts = [at + 1 for at, token in enumerate(held) if token == self._start]
        return sum(self._text(held[at : at + len(OPENING)]).startswith(OPENING) for at in starts)

    def _tokens(self, reply: str) -> dict[int, int]:
        """Return the tokens of a reply, by where each begins in it."""
        tokens = self._tokenizer.encode(reply)
        ends = accumulate(len(self._tokenizer.token_bytes(token)) for token in tokens)
        return dict(zip([0, *ends], tokens, strict=False))

    def _text(self, tokens: list[int]) -> bytes:
        return b"".join(map(self._tokenizer.token_bytes, tokens))

    def _die_once(self, mark: Path) -> None:
        if not mark.exists():
            with contextlib.suppress(OSError):  # a mark that cannot be made: it dies each time
                mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)

    def known_costs(self) -> dict[int, float]:
        step_ms = max(self._script.step_ms, 0.01)
        return {1: step_ms, 64: step_ms + 63 * self._script.prefill_token_ms}

    def trim(self, seq: int, length: int) -> int:
        del self._kv.setdefault(seq, [])[length:]
        self._answers.pop(seq, None)
        return len(self._kv[seq])

    def share(self, source: int, target: int, length: int) -> int:
        self._kv[target] = self._kv.get(source, [])[:length]
        self._answers.pop(target, None)
        return len(self._kv[target])

    def save(self, seq: int) -> bytes:
        return msgspec.msgpack.encode(self._kv.get(seq, []))

    def load(self, seq: int, state: KVState) -> None:
        assert isinstance(state, bytes)
        held = msgspec.msgpack.decode(state, type=list[int])
        if sum(map(len, self._kv.values())) + len(held) > self.info.context_tokens:
            raise KVFull
        self._kv[seq] = held
        self._answers.pop(seq, None)

    def token_bytes(self, token: int) -> bytes:
        return self._tokenizer.token_bytes(token)

    def close(self) -> None:
        self._kv.clear()


def said_of(reply: bytes, text: bytes) -> bytes:
    """Return how much of a reply a text ends with."""
    lengths = range(min(len(reply), len(text)), 0, -1)
    return next((reply[:length] for length in lengths if text.endswith(reply[:length])), b"")


def _load(script: Script, tell: TellRead) -> None:
    if script.is_stuck:
        time.sleep(script.load_ms / 1e3)
    end = time.perf_counter() + script.load_ms / 1e3
    while not script.is_stuck and (time.perf_counter() < end or not _is_read(script, tell)):
        time.sleep(0.005)
        sum(range(100_000))  # a few milliseconds of work


def _is_read(script: Script, tell: TellRead) -> bool:
    """Tell how much of the model is read, if a test controls that. Return whether it is all."""
    if not script.load_file:
        return True
    read = Path(script.load_file).stat().st_size
    tell(read, script.load_bytes)
    return read >= script.load_bytes
