"""The bench of the wire: its thin clients, the scripts it plays, its report, and a whole run."""

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import example, given
from hypothesis import strategies as st
from websockets.frames import Frame as LibraryFrame
from websockets.frames import Opcode
from websockets.streams import StreamReader

from vivace.bench.engine.engine_process import EngineProcess
from vivace.bench.served.clients import SocketClient
from vivace.bench.served.own_server import BenchServer, open_server
from vivace.bench.served.streams import EventReader, FrameReader, framed
from vivace.bench.served.turns import ask_http, ask_socket
from vivace.bench.wire import conversation
from vivace.bench.wire.effort import FULL, PARTS, QUICK, Effort
from vivace.bench.wire.limits import LIMITS, judge
from vivace.bench.wire.measures.idle import memory_kib
from vivace.bench.wire.report import LINES, table
from vivace.bench.wire.run import run_wire_bench
from vivace.bench.wire.stamps import made_ns, noise
from vivace.cli.measure.bench import bench
from vivace.config import Settings
from vivace.engine.wire.frames import Generate
from vivace.engine.wire.job import Job
from vivace.errors import RequestRefused
from vivace.models.tokenizer import ByteTokenizer, load_tokenizer

SMALLEST = Effort(
    loops=1,
    turns=2,
    token_rounds=1,
    tokens=50,
    fanout_sockets=3,
    fanout_tokens=50,
    idle_sockets=5,
    first_token_rounds=1,
    first_token_chars=400,
    seconds=QUICK.seconds,
)
CONTRACT = """
roundtrip.overhead_reduction roundtrip.socket.overhead_ms roundtrip.http.overhead_ms first_token.reduction
first_token.socket_ms first_token.http_ms per_token.overhead_us per_token.overhead_us_p99
per_token.ratio_to_sse per_token.floor_us per_token.with_engine_us fanout.tok_s fanout.delivered_share
fanout.made_share idle.kib_per_socket idle.sockets machine.cpu machine.load_at_start versions.uvicorn model
thresholds passed
"""


def script(folder: Path, **fields: Any) -> str:
    file = folder / "script.json"
    file.write_text(json.dumps(fields))
    return f"scripted:{file}"


def pieces(data: bytes, cuts: list[int]) -> Iterator[bytes]:
    """The same bytes, cut anywhere."""
    places = sorted({cut % (len(data) + 1) for cut in cuts} | {0, len(data)})
    for start, end in itertools.pairwise(places):
        yield data[start:end]


# ---- the thin clients ---------------------------------------------------------------------------

CUTS = st.lists(st.integers(0, 1 << 20), max_size=20)
PAYLOADS = st.lists(st.binary(max_size=300) | st.sampled_from([b"x" * 126, b"y" * 70_000]), max_size=5)


@given(PAYLOADS, CUTS)
@example([b"a", b"x" * 126, b"y" * 70_000], list(range(200)))
def test_frames_are_read_however_they_were_cut(payloads: list[bytes], cuts: list[int]) -> None:
    """Every message comes out whole and in order; pings are noted, a close is seen."""
    frames = [LibraryFrame(Opcode.TEXT, payload).serialize(mask=False) for payload in payloads]
    data = b"".join([LibraryFrame(Opcode.PING, b"p").serialize(mask=False), *frames])
    data += LibraryFrame(Opcode.CLOSE, b"").serialize(mask=False)
    reader = FrameReader()
    assert [event for piece in pieces(data, cuts) for event in reader.feed(piece)] == payloads
    assert reader.pings == [b"p"]
    assert reader.is_closed


@given(
    st.binary(max_size=400) | st.sampled_from([b"z" * 125, b"z" * 126, b"z" * 65_536]),
    st.binary(min_size=4, max_size=4),
)
def test_a_frame_is_what_the_library_reads(payload: bytes, key: bytes) -> None:
    """Lengths of all three kinds, masked with any key."""
    stream = StreamReader()
    stream.feed_data(framed(payload, key))
    parsing = LibraryFrame.parse(stream.read_exact, mask=True)
    with pytest.raises(StopIteration) as ended:
        next(parsing)
    assert bytes(ended.value.value.data) == payload


@given(st.lists(st.text(max_size=40), max_size=8), st.integers(1, 60), CUTS)
def test_events_are_read_however_they_were_chunked(texts: list[str], size: int, cuts: list[int]) -> None:
    """Chunks need not be events, and reads need not be chunks."""
    events = [json.dumps({"delta": text}).encode() for text in texts]
    body = b"".join(b"event: some.type\ndata: " + event + b"\n\n" for event in events)
    chunks = [body[at : at + size] for at in range(0, len(body), size)]
    data = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
    data += b"".join(f"{len(chunk):x}\r\n".encode() + chunk + b"\r\n" for chunk in chunks) + b"0\r\n\r\n"
    reader = EventReader()
    assert [event for piece in pieces(data, cuts) for event in reader.feed(piece)] == events
    assert reader.is_over


# ---- scripts ------------------------------------------------------------------------------------


def prompt(text: str) -> list[int]:
    tokens = ByteTokenizer()
    start, end = map(tokens.control, tokens.CONTROLS[:2])
    return [start, *tokens.encode(f"user\n{text}"), end, 10, start, *tokens.encode("assistant\n")]


@pytest.mark.parametrize("is_engineless", [True, False])
def test_every_token_has_its_stamp(tmp_path: Path, is_engineless: bool) -> None:
    """The reply that the prompt asks for, and when each of its bytes was made, in order, on a raster."""
    replies = {"one": noise(30, 1), "two": noise(30, 2)}
    stamps = tmp_path / "stamps"
    model = script(
        tmp_path, replies=replies, step_ms=2, is_paced=True, stamps=str(stamps), is_engineless=is_engineless
    )
    with (
        EngineProcess(Job(model, "", context_tokens=4096, allow_scripted=True)) as engine,
        engine.session() as session,
    ):
        before = time.monotonic_ns()
        turn = engine.run(Generate(session, "", prompt("say two"), use_drafts=False))
    made = made_ns(stamps, 1, 30)
    assert bytes(turn.tokens[:-1]).decode() == replies["two"]
    assert turn.reason == "stop"
    assert before < made[0]
    assert made == sorted(made)
    assert made[-1] - before >= 30 * 2_000_000, "no faster than its pace"
    assert made_ns(stamps, 0, 30) == [0] * 30, "the other reply was not given"


def test_a_player_can_be_interrupted(tmp_path: Path) -> None:
    """It ends within its reply, and answers the next turn."""
    model = script(tmp_path, replies={"": "x" * 10_000}, step_ms=1, is_engineless=True)
    with (
        EngineProcess(Job(model, "", context_tokens=4096, allow_scripted=True)) as engine,
        engine.session() as session,
    ):
        turn = engine.wait_for_tokens(engine.begin(Generate(session, "", prompt("go"))), 3)
        engine.interrupt(turn)
        assert engine.finish(turn).reason == "interrupted"
        assert engine.run(Generate(session, "", prompt("go"), max_tokens=5)).reason == "length"


def test_a_script_can_speak_a_real_vocabulary(tmp_path: Path, smol: Path) -> None:
    """The reply comes in the tokens of the file that it names."""
    model = script(tmp_path, replies={"": conversation.CALL_TEXT}, vocabulary=str(smol))
    tokenizer = load_tokenizer(model, None)
    text = [tokenizer.control("<|im_start|>"), *tokenizer.encode("assistant\n")]
    with (
        EngineProcess(Job(model, "", context_tokens=4096, allow_scripted=True)) as engine,
        engine.session() as session,
    ):
        turn = engine.run(Generate(session, "", text))
    assert b"".join(map(tokenizer.token_bytes, turn.tokens)).decode() == conversation.CALL_TEXT
    assert len(turn.tokens) < len(conversation.CALL_TEXT) / 2


def test_the_conversation_has_an_agents_sizes() -> None:
    """Ten tools of about 19 KB, every call of one that is there, outputs of a few KB."""
    tools = conversation.tools()
    assert len(tools) == 10
    assert 15_000 < sum(len(tool["description"]) for tool in tools) < 25_000
    assert json.loads(conversation.CALL_TEXT.splitlines()[1])["name"] in {tool["name"] for tool in tools}


# ---- the report ---------------------------------------------------------------------------------


@pytest.fixture
def wire_report() -> dict[str, Any]:
    """Every limit is met but one: a token takes too long."""
    report: dict[str, Any] = {
        "model": "a-model",
        "machine": {"cpu": "a CPU", "cpus": 2, "memory_gb": 16.0, "load_at_start": 0.1, "load_at_end": 1.2},
        "versions": {"python": "3.11", "uvicorn": "1", "websockets": "2"},
        "roundtrip": {
            "overhead_reduction": 0.9,
            "socket": {"overhead_ms": 4.0},
            "http": {"overhead_ms": 40.0},
            "turns": 20,
            "loops": 5,
        },
        "first_token": {"reduction": 0.8, "socket_ms": 200.0, "http_ms": 1000.0},
        "per_token": {
            "overhead_us": 151.0,
            "overhead_us_p99": 400.0,
            "sse_us": 180.0,
            "with_engine_us": 210.0,
            "floor_us": 60.0,
            "ratio_to_sse": 0.84,
        },
        "fanout": {"tok_s": 15_900.0, "delivered_share": 0.99, "sockets": 16, "cores": 2},
        "idle": {"kib_per_socket": 20.0, "sockets": 1000},
    }
    report["passed"] = judge(report)
    return report


def test_the_table_has_a_row_for_every_limit(wire_report: dict[str, Any]) -> None:
    """Both sides, the figure, the limit and whether it is met; what was missed is named at the end."""
    assert set(LIMITS) <= {line.key for line in LINES}
    shown = table(wire_report)
    row = next(line for line in shown.splitlines() if line.startswith("a turn of a tool loop"))
    assert row.split("  ")[-1] == "yes"
    assert "40.0 ms by HTTP" in row
    assert "0.90 less" in row
    assert shown.endswith("Missed: per_token.overhead_us.")


def test_a_busy_machine_is_said(wire_report: dict[str, Any]) -> None:
    """Figures from beside other programs come with a warning, whenever those came."""
    assert "busy" not in table(wire_report)
    wire_report["machine"]["load_at_end"] = 4.0
    assert "busy (load 3.0)" in table(wire_report)


@pytest.mark.parametrize(
    ("arguments", "code"), [(["--json"], 0), (["--json", "--check"], 1), (["--quick"], 0), (["--check"], 1)]
)
def test_the_command_shows_the_report(
    wire_report: dict[str, Any], monkeypatch: pytest.MonkeyPatch, arguments: list[str], code: int
) -> None:
    """JSON or a table; a missed limit is a failure only where it was asked for."""
    asked: list[Any] = []

    def run(settings: Settings, effort: Effort) -> dict[str, Any]:
        asked.append((settings.model, effort))
        return wire_report

    monkeypatch.setattr("vivace.bench.wire.run.run_wire_bench", run)
    answer = CliRunner().invoke(bench, ["wire", *arguments], catch_exceptions=False, standalone_mode=False)
    assert answer.return_value == code
    assert asked == [("smollm2-135m", QUICK if "--quick" in arguments else FULL)]
    if "--json" in arguments:
        assert json.loads(answer.stdout) == wire_report
    else:
        assert "by HTTP" in answer.stdout


# ---- real runs ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory, shallow: Path) -> Settings:
    folder = tmp_path_factory.mktemp("wire")
    return Settings(folder / "cache", folder / "state", model=str(shallow), context_tokens=8192, threads=1)


@pytest.fixture(scope="module")
def server(own: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BenchServer]:
    model = script(tmp_path_factory.mktemp("scripts"), replies={"": "Hello."})
    with open_server(own, model) as opened:
        yield opened


@pytest.fixture(scope="module")
def measured(own: Settings) -> dict[str, Any]:
    """One whole run, with the least that gives every figure."""
    return run_wire_bench(own, SMALLEST)


@pytest.mark.parametrize("key", CONTRACT.split())
def test_a_run_gives_every_figure(measured: dict[str, Any], key: str) -> None:
    """Nested by the dots of its key."""
    found: Any = measured
    for name in key.split("."):
        assert name in found, f"{key} is missing"
        found = found[name]
    assert found is not None


def test_a_run_judges_itself(measured: dict[str, Any]) -> None:
    """Every limit is named with its value, and judged."""
    assert measured["thresholds"].keys() == measured["passed"].keys() == LIMITS.keys()
    assert measured["first_token"]["http_cached_tokens"] < measured["first_token"]["http_new_tokens"]
    assert json.loads(json.dumps(measured)) == measured


def test_both_clients_hear_the_whole_answer(server: BenchServer) -> None:
    """A character arrives once, and the response is the server's."""
    body = {"model": server.settings.model, "input": "hi", "store": False}
    with SocketClient(server.address) as socket:
        measured = [ask_socket(socket, body), ask_socket(socket, body), ask_http(server.address, body)]
    for turn in measured:
        assert turn.answer
        assert turn.answer.output[0]["content"][0]["text"] == "Hello."
        assert len(turn.arrived_ns) == len("Hello.")
        assert turn.begun_ns < turn.arrived_ns[0] <= turn.ended_ns


def test_a_refusal_is_an_error(server: BenchServer) -> None:
    """Not a turn that never ends."""
    body = {"model": server.settings.model, "input": "hi", "previous_response_id": "resp_nobody"}
    with SocketClient(server.address) as socket, pytest.raises(RequestRefused):
        ask_socket(socket, body)
    with pytest.raises(RequestRefused):
        ask_http(server.address, body)


def test_memory_is_that_of_the_process() -> None:
    """A process that takes some has more."""
    takes = "print(flush=True); input(); block = b'x' * (64 << 20); print(flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", takes], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin
        assert process.stdout
        process.stdout.readline()
        before = memory_kib(process.pid)
        print(file=process.stdin, flush=True)
        process.stdout.readline()
        assert memory_kib(process.pid) - before > 60_000
        process.communicate("\n")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")
@pytest.mark.parametrize("signal_number", [signal.SIGINT, signal.SIGTERM])
def test_control_c_leaves_nothing(shallow: Path, tmp_path: Path, signal_number: signal.Signals) -> None:
    """Server and engine are gone when the command is, and so is their folder."""
    command = [sys.executable, "-m", "vivace", "bench", "wire", "--quick", "--model", str(shallow)]
    environment = os.environ | {"TMPDIR": str(tmp_path), "VIVACE_THREADS": "1"}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stderr
        assert f"[1/{len(PARTS)}]" in process.stderr.readline()
        (server,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        engines = Path(f"/proc/{server}/task/{server}/children").read_text().split()
        process.send_signal(signal_number)
        assert process.wait(60) == 130
    assert not [child for child in (server, *engines) if Path(f"/proc/{child}").exists()]
    assert not list(tmp_path.iterdir())
