"""The server's log: what a line looks like, and what is never in one."""

import ast
import asyncio
import io
import json
import logging
import re
import subprocess
import sys
from collections.abc import Callable, Iterator

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.server.watch.metrics_page import ended
from vivace.protocol.shapes.events import InputTokensDetails, Usage, Waterfall
from vivace.protocol.shapes.outcomes import Broken, Ended, Terminal
from vivace.protocol.shapes.parsing import parse_create
from vivace.server.caller import Caller
from vivace.server.watch.logs import JsonLines, TextLines, logfmt
from vivace.server.watch.metrics import Metrics
from vivace.server.watch.turn_watch import Watch

MARKER = "zyzzyva"  # the word that is in every text of a turn, and must be in no line
REQUEST = msgspec.json.encode(
    {
        "input": [{"role": "user", "content": f"say {MARKER}"}],
        "instructions": MARKER,
        "metadata": {MARKER: MARKER},
        "client_metadata": {MARKER: MARKER, "ws_request_header_traceparent": MARKER},
        "stop": MARKER,
        "prompt_cache_key": MARKER,
        "prediction": {"type": "content", "content": MARKER},
        "tools": [{"type": "function", "name": MARKER, "parameters": {"type": "object"}}],
        "text": {"format": {"type": "json_schema", "name": MARKER, "schema": {"title": MARKER}}},
    }
)


@pytest.fixture(params=["text", "json"])
def lines(request: pytest.FixtureRequest) -> Iterator[Callable[[], list[str]]]:
    """What is logged meanwhile, as it would stand in the file."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(TextLines() if request.param == "text" else JsonLines())
    root = logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    yield lambda: stream.getvalue().split("\n")[:-1]
    root.removeHandler(handler)
    root.setLevel(level)


def play(outcome: Terminal, *, abort: str = "", request: bytes = REQUEST) -> None:
    """A turn from its acceptance to this end."""
    watch = Watch(Metrics())
    asked = parse_create(request)
    asked.model = "m"
    told = watch.began("resp_1", asked, Caller(key="key_1"))
    told.started()
    told.tokens(2)
    if abort:
        told.aborting(abort)
    told.ended(outcome)
    told.ended(outcome)


def record(message: str, *args: object, **extra: object) -> logging.LogRecord:
    made = logging.LogRecord("vivace.some", logging.INFO, "file.py", 1, message, args, None)
    made.__dict__.update(extra)
    return made


def test_a_turn_is_one_line(lines: Callable[[], list[str]]) -> None:
    """However often it is told that it ended; with who, what, how much and how long."""
    usage = Usage(10, 4, 14, InputTokensDetails(cached_tokens=6))
    play(Ended("stop", usage, Waterfall(total_ms=12.34, draft_accepted=3)))
    (line,) = lines()
    told = json.loads(line) if line.startswith("{") else unquoted(line.split(": turn ")[1])
    assert {name: str(value) for name, value in told.items()}.items() >= {
        "response": "resp_1",
        "model": "m",
        "tier": "realtime",
        "key": "key_1",
        "reason": "stop",
        "input_tokens": "10",
        "cached_tokens": "6",
        "output_tokens": "4",
        "total_ms": "12.3",
        "draft_accepted": "3",
        "restarts": "0",
    }.items()
    assert "abort" not in told


def test_an_abort_is_told_with_its_reason(lines: Callable[[], list[str]]) -> None:
    """Why the turn was ended early, and how long it took until it was."""
    play(ended("interrupted"), abort="client_gone")
    (line,) = lines()
    assert "client_gone" in line
    assert "free_ms" in line


def test_a_failure_is_a_warning_with_its_code(lines: Callable[[], list[str]]) -> None:
    """The code, not the message: that may say what was asked."""
    play(Broken("engine_died", f"It died over {MARKER}."))
    (line,) = lines()
    assert "WARNING" in line
    assert "engine_died" in line
    assert MARKER not in line


def test_typing_is_not_logged_key_by_key(lines: Callable[[], list[str]]) -> None:
    """A provisional prefill has no line, unless it fails."""
    request = msgspec.json.encode({"input": "a", "generate": False, "is_provisional": True})
    play(ended("appended"), request=request)
    assert lines() == []
    play(Broken("engine_died", ""), request=request)
    assert len(lines()) == 1


@pytest.mark.parametrize(
    "outcome",
    [
        ended("stop"),
        ended(f"stopped at {MARKER}"),
        Ended("scored", Usage(1, 1, 2), Waterfall(), [0.5]),
        Broken("upstream_error", f"You said {MARKER}."),
        Broken(f"{MARKER} is bad", MARKER),
    ],
)
def test_no_text_of_a_turn_is_in_its_line(outcome: Terminal, lines: Callable[[], list[str]]) -> None:
    """Whatever the request holds and however it ends."""
    play(outcome)
    assert len(lines()) == 1
    assert MARKER not in lines()[0]


def causes(error: BaseException) -> BaseException:
    try:
        raise RuntimeError(MARKER) from error
    except RuntimeError as raised:
        return raised


def decoding_error() -> Exception:
    try:
        msgspec.json.decode(f'{{"{MARKER}": 1}}', type=dict[str, str])
    except msgspec.ValidationError as raised:
        return raised
    raise AssertionError("it decodes")


@pytest.mark.parametrize(
    "error",
    [
        ValueError(MARKER),
        KeyError(MARKER),
        AssertionError(ended(MARKER)),
        UnicodeDecodeError("utf-8", MARKER.encode(), 0, 1, "bad"),
        FileNotFoundError(2, "No such file or directory", MARKER),
        OSError(MARKER),
        decoding_error(),
        causes(ValueError(MARKER)),
        ExceptionGroup(MARKER, [ValueError(MARKER), ValueError(MARKER)]),
    ],
    ids=lambda error: type(error).__name__,
)
def test_no_text_is_in_a_traceback(error: BaseException, lines: Callable[[], list[str]]) -> None:
    """Exceptions quote what was being worked on; where they were raised is told, and what kind they are."""
    try:
        raise error
    except BaseException:
        logging.getLogger("vivace.some").exception("%s failed", "resp_1")
    text = "\n".join(lines())
    assert MARKER not in text
    assert "test_no_text_is_in_a_traceback" in text
    assert type(error).__name__ in text


def test_what_helps_and_quotes_nothing_stays(lines: Callable[[], list[str]]) -> None:
    """A full disk says so, and a mistake in the code is named."""
    for error in (OSError(28, "No space left on device"), AttributeError("no attribute 'hear'")):
        logging.getLogger("vivace.some").error("failed", exc_info=error)
    assert "No space left on device" in "".join(lines())
    assert "no attribute 'hear'" in "".join(lines())


async def test_asyncio_tells_of_no_arguments(lines: Callable[[], list[str]]) -> None:
    """A callback that raises, and a task nobody asked about: their arguments and results are not shown."""

    async def work(text: str) -> None:
        raise ValueError(text)

    def call(text: str) -> None:
        raise ValueError(text)

    loop = asyncio.get_running_loop()
    loop.call_soon(call, MARKER)
    task = asyncio.create_task(work(MARKER), name=MARKER)
    await asyncio.wait([task])
    del task
    text = "\n".join(lines())
    assert "Exception in callback" in text
    assert "Task exception was never retrieved" in text
    assert MARKER not in text


# ---- no value can fake a line -----------------------------------------------------------------------


@given(st.text(), st.text())
def test_nothing_in_a_value_can_begin_a_line(message: str, value: str) -> None:
    """A line end in a message or a field, of any kind that Unicode has, is not one in the log."""
    made = record("%s", message, fields={"field": value})
    assert len(TextLines().format(made).splitlines()) == 1
    assert len(JsonLines().format(made).splitlines()) == 1


@given(st.text())
def test_a_traceback_cannot_look_like_a_line(text: str) -> None:
    """Every line of it is indented, whatever the exception says."""
    made = record("failed", exc_info=(AttributeError, AttributeError(text), None))
    first, *others = TextLines().format(made).splitlines()
    assert first.endswith("failed")
    assert all(line.startswith("  | ") for line in others)
    assert len(JsonLines().format(made).splitlines()) == 1


@given(
    st.dictionaries(
        st.from_regex("[a-z_]+", fullmatch=True), st.text(st.characters(exclude_categories=["Cs"]))
    )
)
def test_fields_come_back_as_they_were(fields: dict[str, str]) -> None:
    """Quotes, spaces, equals signs and escapes in values do not change which fields there are."""
    text = " ".join(f"{name}={logfmt(value)}" for name, value in fields.items())
    assert unquoted(text) == fields
    made = record("turn", fields=fields)
    about = {"time", "level", "logger", "message"}
    told = json.loads(JsonLines().format(made))
    assert {name: told[name] for name in fields.keys() - about} == {
        name: value for name, value in fields.items() if name not in about
    }


def unquoted(text: str) -> dict[str, str]:
    """Read logfmt: `name=word name="quoted"`."""
    fields, at = dict[str, str](), 0
    while at < len(text):
        found = re.compile(r'([a-z_]+)=("(?:[^"\\]|\\.)*"|[^\s"=\\]+)(?: |$)').match(text, at)
        assert found, text[at:]
        fields[found[1]] = ast.literal_eval(found[2]) if found[2].startswith('"') else found[2]
        at = found.end()
    return fields


def test_arguments_that_do_not_fit_are_no_failure() -> None:
    """A mistake in a log call is a line without its arguments."""
    assert TextLines().format(record("%d tokens", MARKER)).endswith("vivace.some: %d tokens")


def test_lone_surrogates_can_be_written() -> None:
    """Half a character is escaped, in both formats, and the line can be encoded."""
    made = record("%s", "\ud800", fields={"field": "\udfff"})
    TextLines().format(made).encode("utf-8")
    JsonLines().format(made).encode("utf-8")


@pytest.mark.parametrize("format", ["text", "json"])
def test_a_server_logs_to_stderr(format: str) -> None:
    """One line for what is worth one; what libraries say to debug them, frames included, is not shown."""
    code = (
        "import logging, sys; from vivace.server.watch.logs import start_logging\n"
        "start_logging(sys.argv[1])\n"
        "logging.getLogger('vivace.some').info('up\\nand well')\n"
        f"logging.getLogger('websockets.server').debug('< TEXT {MARKER}')\n"
        f"logging.getLogger('vivace.some').info('%d', object.__new__(type('{MARKER}', (), {{}})))\n"
        "logging.getLogger('uvicorn.error').info('Started server process')\n"
    )
    ran = subprocess.run([sys.executable, "-c", code, format], capture_output=True, text=True, check=True)
    assert ran.stdout == ""
    up, broken = ran.stderr.splitlines()
    assert "up\\nand well" in up
    assert MARKER not in broken
