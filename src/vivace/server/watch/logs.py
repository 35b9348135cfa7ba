"""The server's log: a line for whatever happens, and one line a turn; text for people, or JSON for programs.

Owns how lines look and what they never hold: text of a prompt or an answer. So messages of exceptions, which
often quote what was being worked on, are left out unless their type is known not to; where it was raised is
logged. No value can end a line or begin another: what cannot be printed is escaped, and lines of a traceback
begin with "  |". Does not own who logs what.
"""

import json
import logging
import math
import re
import sqlite3
import sys
import traceback
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Literal

from vivace.protocol.shapes.outcomes import Broken, Terminal
from vivace.server.watch.turn_meter import OTHER, TurnMeter, is_code

LogFormat = Literal["text", "json"]

MAX_CAUSES, MAX_FRAMES = 8, 40  # of an exception, shown with it
TELLING = (sqlite3.Error, ImportError, NameError, AttributeError)  # their messages name code, and no values
STAGES = ("queue", "tokenize", "restore", "prefill", "first_token", "decode", "grammar", "total")

turns = logging.getLogger("vivace.turns")


def start_logging(format: LogFormat = "text") -> None:
    """Log to stderr, which is the log file of a background server."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if format == "json" else TextLines())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    logging.raiseExceptions = False  # or a line that cannot be written is shown with all its arguments
    for noisy in ("uvicorn.error", "asyncio"):
        logging.getLogger(noisy).setLevel(logging.WARNING)


def log_turn(
    outcome: Terminal, meter: TurnMeter, *, response_id: str, model: str, tier: str, key: str
) -> None:
    """Write the one line of a turn that is over."""
    fields: dict[str, Any] = {"response": response_id, "model": model, "tier": tier, "key": key}
    if isinstance(outcome, Broken):
        fields["reason"] = "failed"
        fields["code"] = outcome.code if is_code(outcome.code) else OTHER
        fields["total_ms"] = _ms(meter.passed_s * 1e3)
    else:
        usage, times = outcome.usage, outcome.waterfall
        fields["reason"] = outcome.reason if is_code(outcome.reason) else OTHER
        fields["input_tokens"] = usage.input_tokens
        fields["cached_tokens"] = usage.input_tokens_details.cached_tokens
        fields["output_tokens"] = usage.output_tokens
        fields |= {f"{stage}_ms": _ms(getattr(times, f"{stage}_ms")) for stage in STAGES}
        fields |= {"draft_accepted": times.draft_accepted, "draft_rejected": times.draft_rejected}
        fields["restarts"] = times.restarts
    if meter.abort:
        fields["abort"] = meter.abort
    if meter.free_s is not None:
        fields["free_ms"] = _ms(meter.free_s * 1e3)
    level = logging.WARNING if isinstance(outcome, Broken) else logging.INFO
    turns.log(level, "turn", extra={"fields": fields})


class TextLines(logging.Formatter):
    """`2026-11-15T10:00:00.123+01:00 INFO vivace.turns: turn response=resp_1 model=m …`"""

    def format(self, record: logging.LogRecord) -> str:
        line = f"{_when(record)} {record.levelname} {record.name}: {printable(_message(record))}"
        line += "".join(f" {name}={logfmt(value)}" for name, value in _fields(record).items())
        return "\n".join([line, *(f"  | {printable(text)}" for text in _trace(record))])


class JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        about = {
            "time": _when(record),
            "level": record.levelname,
            "logger": record.name,
            "message": _message(record),
        }
        trace = list(_trace(record))
        if trace:
            about["traceback"] = "\n".join(trace)
        return json.dumps({**about, **_fields(record), **about}, default=lambda value: type(value).__name__)


def logfmt(value: object) -> str:
    """Return a value that cannot be misread: bare if it is a plain word, else quoted."""
    text = str(value)
    if re.fullmatch(r'[^\s"=\\]+', text) and text.isprintable():
        return text
    return '"' + printable(text.replace("\\", r"\\").replace('"', r"\"")) + '"'


def printable(text: str) -> str:
    """Escape control characters, line ends and marks that reverse the direction of text."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def _when(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created).astimezone().isoformat(timespec="milliseconds")


def _fields(record: logging.LogRecord) -> Mapping[str, Any]:
    fields = getattr(record, "fields", None)
    return fields if isinstance(fields, dict) else {}


def _message(record: logging.LogRecord) -> str:
    try:
        message = record.getMessage()
    except (TypeError, ValueError, KeyError):
        return str(record.msg)  # arguments that do not fit it
    if record.name == "asyncio":  # it adds the arguments of callbacks and the results of tasks
        return re.split(r"[\n(<]", message, maxsplit=1)[0].rstrip()
    return message


def _trace(record: logging.LogRecord) -> Iterator[str]:
    """Return where an exception and its causes were raised, the last first."""
    error = record.exc_info[1] if record.exc_info else None
    for _ in range(MAX_CAUSES):
        if error is None:
            return
        for frame in traceback.extract_tb(error.__traceback__, -MAX_FRAMES):
            yield f"{frame.filename}:{frame.lineno} in {frame.name}: {frame.line or ''}"
        yield _name(error)
        if isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        else:
            error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
        if error is not None:
            yield "because of"


def _name(error: BaseException) -> str:
    kind = f"{type(error).__module__}.{type(error).__qualname__}".removeprefix("builtins.")
    if isinstance(error, OSError) and error.strerror:
        return f"{kind}: {error.strerror}"
    return f"{kind}: {error}" if isinstance(error, TELLING) else kind


def _ms(value: float) -> float | None:
    return round(value, 1) if math.isfinite(value) else None
