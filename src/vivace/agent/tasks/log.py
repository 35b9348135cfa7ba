"""The log of a task: a file of JSON lines that only grows, and the face that writes the task's steps into it.

Owns the file. A line is on the disk when `append` returns, so whatever is logged before it is done is known
after a crash of the machine. A line that a crash cut off is no line. Only the holder of the task's lock
appends (`store`). Does not own what the lines mean (`records`, `state`).
"""

import asyncio
import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from vivace.agent.events.task import AnyStep, ApprovalAnswered, ApprovalAsked, RedactedSteps, TextGrew
from vivace.agent.loop.calls import Approval
from vivace.agent.tasks.inbox import Message
from vivace.agent.tasks.records import AnyRecord, Line
from vivace.durable import replace_file
from vivace.errors import WriteProblem
from vivace.redaction import redact_values

TEXT_S = 0.2  # text of the model is written down this often

_decode = msgspec.json.Decoder(Line).decode


class TaskLog:
    def __init__(self, file: Path) -> None:
        self.file = file
        try:
            self._fd = os.open(file, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise _unwritable(file, error.strerror or "") from error
        self._drop_cut_line()

    def append(self, step: AnyRecord) -> None:
        """Write one line, without known secrets. Text that grows is not worth waiting for the disk."""
        plain = {"at_s": round(time.time(), 3), "step": redact_values(msgspec.to_builtins(step))}
        line = msgspec.json.encode(plain) + b"\n"
        try:
            written = os.write(self._fd, line)
            if written < len(line):
                os.ftruncate(self._fd, os.fstat(self._fd).st_size - written)
                raise _unwritable(self.file, "the disk is full")
            if not step.is_delta:
                os.fsync(self._fd)
        except OSError as error:
            raise _unwritable(self.file, error.strerror or "") from error

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __enter__(self) -> "TaskLog":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _drop_cut_line(self) -> None:
        data = self.file.read_bytes()
        whole = data.rfind(b"\n") + 1
        if whole < len(data):
            with contextlib.suppress(OSError):
                os.ftruncate(self._fd, whole)


class LogFace:
    """The face of a task that nobody looks at: its log. A question waits for an answer in the inbox.

    The log has no secrets, and a person must see all of what is asked. So a question that the log cannot hold
    whole stands in a file beside it, which only its owner can read, until it is answered.
    """

    def __init__(self, log: TaskLog, question_file: Path | None = None) -> None:
        self._log = log
        self._question_file = question_file  # None: somebody is asked at once
        self._text = ""
        self._redacted = RedactedSteps()
        self._text_since_s = 0.0
        self._asked: tuple[ApprovalAsked, asyncio.Future[Approval]] | None = None

    def show(self, step: AnyStep) -> None:
        if isinstance(step, TextGrew):
            self._grow(step.text)
            return
        self._write_text()
        if isinstance(step, ApprovalAsked | ApprovalAnswered) and self._question_file is not None:
            keep_question(self._question_file, step if isinstance(step, ApprovalAsked) else None)
        for each in self._redacted.take(step):
            self._log.append(each)

    async def approve(self, asked: ApprovalAsked) -> Approval:
        answer: asyncio.Future[Approval] = asyncio.get_running_loop().create_future()
        self._asked = (asked, answer)
        try:
            return await answer
        finally:
            self._asked = None

    def answer(self, message: Message) -> None:
        """Give a person's answer to the question that waits for it. No effect if it is about another one."""
        asked, answer = self._asked or (None, None)
        if asked is None or answer is None or answer.done() or asked.call_id != message.call_id:
            return
        if message.digest == asked.digest:
            answer.set_result(Approval(message.is_allowed, message.text, digest=message.digest))

    def _grow(self, text: str) -> None:
        now_s = time.monotonic()
        self._text_since_s = self._text_since_s or now_s
        self._text += text
        if now_s - self._text_since_s >= TEXT_S:
            self._write_text()

    def _write_text(self) -> None:
        for each in self._redacted.take(TextGrew(text=self._text)) if self._text else []:
            self._log.append(each)
        self._text, self._text_since_s = "", 0.0


def keep_question(file: Path, asked: ApprovalAsked | None) -> None:
    """Write down what the log cannot hold of an open question; without one, forget it."""
    plain = msgspec.to_builtins(asked)
    try:
        if asked is None or redact_values(plain) == plain:
            file.unlink(missing_ok=True)
        else:
            replace_file(file, msgspec.json.encode(asked), mode=0o600)
    except OSError as error:
        raise _unwritable(file, error.strerror or "") from error


def kept_question(file: Path) -> ApprovalAsked | None:
    try:
        return msgspec.json.decode(file.read_bytes(), type=ApprovalAsked)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None


def parse_lines(data: bytes) -> Iterator[Line]:
    """Yield the whole lines. One that cannot be understood is passed over."""
    for line in data.split(b"\n")[:-1]:
        try:
            yield _decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue


def encode_record(record: AnyRecord) -> str:
    """Return a step as a line of JSON, with known secrets taken out."""
    return msgspec.json.encode(redact_values(msgspec.to_builtins(record))).decode()


def read_lines(file: Path) -> list[Line]:
    """Return the lines of a log; none if there is no such file."""
    try:
        return list(parse_lines(file.read_bytes()))
    except OSError:
        return []


def _unwritable(file: Path, why: str) -> WriteProblem:
    return WriteProblem(
        f"{file} could not be written: {why}.",
        "What was done before is kept. Make room, then `vivace tasks resume`.",
    )
