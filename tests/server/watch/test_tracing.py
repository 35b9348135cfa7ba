"""Traces: off by default; a span a turn where the packages of `vivace[otel]` are, else skipped."""

import http.server
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from tests.server.watch.metrics_page import ended
from tests.server.watch.test_logs import MARKER, REQUEST
from vivace.protocol.shapes.events import InputTokensDetails, Usage, Waterfall
from vivace.protocol.shapes.outcomes import Broken, Ended, Terminal
from vivace.protocol.shapes.parsing import parse_create
from vivace.server.caller import Caller
from vivace.server.watch import tracing
from vivace.server.watch.metrics import Metrics
from vivace.server.watch.tracing import Tracing, start_tracing
from vivace.server.watch.turn_watch import TurnWatch, Watch

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
TRACEPARENT = f"00-{TRACE}-{SPAN}-01"
REASON = "the packages of vivace[otel] are not installed"


# ---- off --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": ""},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_SDK_DISABLED": "true"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_TRACES_EXPORTER": "none"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_TRACES_EXPORTER": "console"},
    ],
)
def test_without_an_endpoint_there_are_no_traces(environ: dict[str, str]) -> None:
    """Nothing is sent unless the environment says where to, in a way that we know."""
    assert start_tracing(environ) is None


def test_what_is_off_costs_no_import() -> None:
    """Neither importing the module nor asking it loads anything of OpenTelemetry's."""
    code = (
        "import sys; from vivace.server.watch.tracing import start_tracing\n"
        "assert start_tracing({}) is None\n"
        "print([name for name in sys.modules if name.startswith('opentelemetry')])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"


def test_a_missing_package_is_said_and_does_no_harm() -> None:
    """An endpoint is set, but the extra is not installed: the server runs without traces."""
    code = (
        "import sys; sys.modules['opentelemetry'] = None\n"
        "from vivace.server.watch.tracing import start_tracing\n"
        "print(start_tracing({'OTEL_EXPORTER_OTLP_ENDPOINT': 'http://127.0.0.1:1'}))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "None\n"
    assert "vivace extras add otel" in ran.stderr


# ---- on ---------------------------------------------------------------------------------------------


class Spans:
    """Turns that are traced, and the spans that came of them."""

    def __init__(self, sampler: str = "ALWAYS_ON") -> None:
        sdk = pytest.importorskip("opentelemetry.sdk.trace", reason=REASON)
        from opentelemetry.sdk.trace import sampling
        from opentelemetry.sdk.trace.export import SimpleSpanProcessor
        from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

        self._exporter = InMemorySpanExporter()
        provider = sdk.TracerProvider(shutdown_on_exit=False, sampler=getattr(sampling, sampler))
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.watch = Watch(Metrics(), Tracing(provider))

    def begin(self, request: bytes = b'{"input": "hi"}', traceparent: str = "") -> TurnWatch:
        asked = parse_create(request)
        asked.model = "m"
        return self.watch.began("resp_1", asked, Caller(traceparent=traceparent))

    def play(self, outcome: Terminal, request: bytes = b'{"input": "hi"}', traceparent: str = "") -> Any:
        """The span of a turn with this end."""
        told = self.begin(request, traceparent)
        told.started()
        told.tokens(1)
        told.ended(outcome)
        return self.named("chat m")

    def all(self) -> tuple[Any, ...]:
        return self._exporter.get_finished_spans()

    def named(self, name: str) -> Any:
        (span,) = [span for span in self.all() if span.name == name]
        return span


@pytest.fixture
def spans() -> Spans:
    return Spans()


def test_a_turn_is_a_span_with_the_names_of_the_conventions(spans: Spans) -> None:
    """What was asked, what it used and how it ended."""
    request = msgspec.json.encode(
        {"input": "hi", "max_output_tokens": 9, "temperature": 0.5, "top_p": 0.9, "stream": True}
    )
    usage = Usage(10, 4, 14, InputTokensDetails(cached_tokens=6))
    span = spans.play(Ended("length", usage, Waterfall(draft_accepted=3)), request)
    assert span.kind.name == "SERVER"
    assert span.attributes["gen_ai.server.time_to_first_token"] > 0
    assert (
        span.attributes.items()
        >= {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": "vivace",
            "gen_ai.request.model": "m",
            "gen_ai.request.max_tokens": 9,
            "gen_ai.request.temperature": 0.5,
            "gen_ai.request.top_p": 0.9,
            "gen_ai.request.stream": True,
            "gen_ai.output.type": "text",
            "gen_ai.response.id": "resp_1",
            "gen_ai.response.model": "m",
            "gen_ai.response.finish_reasons": ("length",),
            "gen_ai.usage.input_tokens": 10,
            "gen_ai.usage.output_tokens": 4,
            "gen_ai.usage.cache_read.input_tokens": 6,
            "vivace.draft.accepted_tokens": 3,
            "vivace.tier": "realtime",
        }.items()
    )


def test_a_failed_turn_is_an_error_with_its_code(spans: Spans) -> None:
    """No message: that may say what was asked."""
    span = spans.play(Broken("engine_died", MARKER))
    assert span.status.status_code.name == "ERROR"
    assert span.status.description is None
    assert span.attributes["error.type"] == "engine_died"
    assert span.attributes["gen_ai.response.finish_reasons"] == ("error",)


@pytest.mark.parametrize(
    "outcome", [ended("stop"), ended(f"{MARKER} came"), Broken("x", MARKER), Broken(f"{MARKER} came", MARKER)]
)
def test_no_text_of_a_turn_is_in_a_span(spans: Spans, outcome: Terminal) -> None:
    """Whatever the request holds and however it ends."""
    spans.play(outcome, REQUEST)
    assert MARKER not in "".join(span.to_json() for span in spans.all())


def test_the_stages_lie_in_their_order_within_the_turn(spans: Spans) -> None:
    """Queue, prefill and decode as long as the waterfall says, as far as the turn itself was."""
    span = spans.play(
        Ended("stop", Usage(1, 1, 2), Waterfall(queue_ms=0.001, prefill_ms=0.002, decode_ms=9e9))
    )
    stages = [spans.named(name) for name in ("queue", "prefill", "decode")]
    assert all(stage.parent.span_id == span.context.span_id for stage in stages)
    assert all(span.start_time <= stage.start_time <= stage.end_time <= span.end_time for stage in stages)
    queued, _, decode = stages
    assert queued.start_time == span.start_time
    assert queued.end_time - queued.start_time == 1000
    assert decode.end_time == span.end_time


def test_a_stage_that_was_not_has_no_span(spans: Spans) -> None:
    """A turn that was interrupted before it began has only itself."""
    spans.play(ended("interrupted"))
    assert len(spans.all()) == 1


def test_the_clients_trace_goes_on(spans: Spans) -> None:
    """`traceparent` names the trace and the span above."""
    span = spans.play(ended(), traceparent=TRACEPARENT)
    assert f"{span.context.trace_id:032x}" == TRACE
    assert f"{span.parent.span_id:016x}" == SPAN


def test_codex_names_its_trace_in_each_message(spans: Spans) -> None:
    """On a socket the headers are those of its beginning; the message's own word is the newer one."""
    request = msgspec.json.encode(
        {"input": "hi", "client_metadata": {"ws_request_header_traceparent": TRACEPARENT}}
    )
    span = spans.play(ended(), request, traceparent=f"00-{'1' * 32}-{'2' * 16}-01")
    assert f"{span.context.trace_id:032x}" == TRACE


@pytest.mark.parametrize("bad", ["", "nonsense", "00-0-0-01", "\x00", "00-" + "f" * 9999])
def test_a_bad_traceparent_begins_a_new_trace(spans: Spans, bad: str) -> None:
    """The turn goes on, with a trace of its own."""
    assert spans.play(ended(), traceparent=bad).parent is None


def test_an_upstream_is_told_the_span(spans: Spans) -> None:
    """The headers for it name the turn's span in the client's trace."""
    told = spans.begin(traceparent=TRACEPARENT)
    header = told.headers["traceparent"]
    told.ended(ended())
    assert header == f"00-{TRACE}-{spans.named('chat m').context.span_id:016x}-01"


def test_a_turn_that_is_not_sampled_leaves_nothing() -> None:
    """Sampling is the SDK's, and is obeyed."""
    spans = Spans("ALWAYS_OFF")
    spans.begin().ended(Ended("stop", Usage(1, 1, 2), Waterfall(queue_ms=5)))
    assert spans.all() == ()


# ---- sent -------------------------------------------------------------------------------------------


class Collector(http.server.ThreadingHTTPServer):
    """Takes what is posted; answers, or waits until it is let go."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.posts: queue.Queue[tuple[str, bytes]] = queue.Queue()
        self.may_answer = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(http.server.BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.posts.put((self.path, body))
        self.server.may_answer.wait()
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def collector() -> Iterator[Collector]:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason=REASON)
    with Collector() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.may_answer.set()
        server.shutdown()
        thread.join()


def traced(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> Tracing:
    """One turn, traced to the collector."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
    found = start_tracing()
    assert found is not None
    watch = Watch(Metrics(), found)
    asked = parse_create(REQUEST)
    asked.model = "some-model"
    watch.began("resp_1", asked, Caller()).ended(ended())
    return found


def test_spans_are_sent_where_the_environment_says(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the end what is left is sent: OTLP over HTTP, under our name, with the turn and none of its text."""
    collector.may_answer.set()
    traced(collector, monkeypatch).close()
    path, body = collector.posts.get(timeout=60)
    assert path == "/v1/traces"
    assert b"chat some-model" in body
    assert b"vivace" in body
    assert MARKER.encode() not in body


@pytest.mark.timeout(20)  # the SDK's own patience is 30 s
def test_a_collector_that_does_not_answer_does_not_hold_the_server(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has taken the spans and says nothing: leaving does not wait for it as long as the SDK would."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "600")
    monkeypatch.setattr(tracing, "CLOSE_S", 0.1)
    traced(collector, monkeypatch).close()
    assert collector.posts.get(timeout=60)
