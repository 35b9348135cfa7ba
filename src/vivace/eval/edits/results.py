"""What came of each task, in a file that only grows: a line for each answer, and one for each verdict on it.

Owns the file's form, and that a run that was killed goes on where it was: a line that was cut is dropped.
Does not own what is counted from it (`report`).
"""

import fcntl
from pathlib import Path
from types import TracebackType
from typing import Literal

import msgspec

from vivace.agent.effort import Effort
from vivace.errors import FileProblem, UsageError, WriteProblem
from vivace.eval.edits.scoring import Verdict
from vivace.eval.edits.tasks import SetName

AnySet = SetName | Literal["requests", "repository"]  # the latter two: `vivace eval requests`
Way = Effort | Literal["bare"]  # bare: the model alone, without the loop
Outcome = Literal["written", "asked", "refused", "question"]  # of a request: what the loop did
BARE: Literal["bare"] = "bare"
Key = tuple[AnySet, str, Way, str]  # set, model, effort, task


class Replaced(msgspec.Struct, frozen=True):
    """An edit of one file: lines of it, counted from 0 and without the last, and what takes their place."""

    path: str
    first: int
    end: int
    lines: tuple[str, ...]

    def applied_to(self, before: str) -> str:
        """Return the file's text with the edit in it."""
        old = before.splitlines(keepends=True)
        return "".join([*old[: self.first], *self.lines, *old[self.end :]])


def replaced(path: str, before: str, after: str) -> Replaced:
    """Return the lines that differ, from the first to the last."""
    old, new = before.splitlines(keepends=True), after.splitlines(keepends=True)
    most = min(len(old), len(new))
    pairs = zip(old, new, strict=False)
    first = next((at for at, (one, other) in enumerate(pairs) if one != other), most)
    most -= first
    ends = zip(reversed(old), reversed(new), strict=False)
    same = next((at for at, (one, other) in enumerate(ends) if one != other or at >= most), most)
    return Replaced(path, first, len(old) - same, tuple(new[first : len(new) - same]))


class Found(msgspec.Struct, frozen=True):
    """Where the loop went with a request, against where the reference goes."""

    outcome: Outcome
    units: tuple[str, ...] = ()  # that were to be rewritten: path:name
    asked: tuple[str, ...] = ()  # the places that the user would have to choose from
    unit_lines: int = 0  # of the longest unit
    is_right_file: bool = False
    is_right_unit: bool = False
    is_right_asked: bool = False  # one of the places asked about is right
    is_words_alone: bool = False  # what was written changes comments and docstrings only
    is_beside_alone: bool = False  # what was written changes tests, examples or documentation only
    others: tuple[Replaced, ...] = ()  # what other answers would have made, the best first


class Answer(msgspec.Struct, frozen=True, tag="answer"):
    set: AnySet
    model: str
    effort: Way
    task: str
    code: str | None  # the whole file, or a bundle of changed files; None: nothing was written
    refusal: str = ""  # why, in the loop's words
    seconds: float = 0.0
    output_tokens: int = 0
    prefilled_tokens: int = 0
    outside_unit_lines: int = 0
    lines_changed: int = 0
    at_once: int = 1  # tasks that ran beside each other
    found: Found | None = None  # of a request that named no place
    has_long_unit: bool = False  # of more lines than are written whole

    @property
    def key(self) -> Key:
        return self.set, self.model, self.effort, self.task


class Score(msgspec.Struct, frozen=True, tag="score"):
    set: AnySet
    model: str
    effort: Way
    task: str
    verdict: Verdict
    detail: str = ""

    @property
    def key(self) -> Key:
        return self.set, self.model, self.effort, self.task


_decode = msgspec.json.Decoder(Answer | Score).decode


class Results:
    """The file, open for one run. What is added is on its way to the disk before `add` returns."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.answers: dict[Key, Answer] = {}
        self.scores: dict[Key, Score] = {}
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("a+b")
        except OSError as error:
            raise WriteProblem(
                f"The results cannot be written to {path}: {error.strerror}.", "Name another with --results."
            ) from error
        try:
            self._take()
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> "Results":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def is_unjudged(self, key: Key) -> bool:
        """Return whether there is an answer that needs a verdict. A refusal needs none."""
        answer = self.answers.get(key)
        return answer is not None and answer.code is not None and key not in self.scores

    def add(self, record: Answer | Score) -> None:
        self._keep(record)
        self._file.write(msgspec.json.encode(record) + b"\n")
        self._file.flush()

    def forget(self) -> None:
        """Begin anew."""
        self._file.truncate(0)
        self.answers, self.scores = {}, {}

    def _take(self) -> None:
        """Read what is there, drop a line that was cut, and keep other runs out."""
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise UsageError(
                f"Another run writes to {self.path}.", "Wait for it, or name another file with --results."
            ) from error
        self._file.seek(0)
        whole, newline, _ = self._file.read().rpartition(b"\n")
        for number, line in enumerate(whole.split(b"\n") if newline else [], 1):
            try:
                self._keep(_decode(line))
            except msgspec.MsgspecError as error:
                raise FileProblem(
                    f"{self.path}, line {number}, is no result: {error}.", "Name another file with --results."
                ) from error
        self._file.truncate(len(whole) + len(newline))

    def _keep(self, record: Answer | Score) -> None:
        if isinstance(record, Answer):
            self.answers[record.key] = record
            self.scores.pop(record.key, None)  # of an earlier answer
        else:
            self.scores[record.key] = record
