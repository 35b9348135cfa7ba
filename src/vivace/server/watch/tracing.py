"""OpenTelemetry traces: a span a turn, named as the gen_ai conventions say, and its stages as child spans.

Owns which attributes a span has; none holds text of a prompt or an answer, nor stop strings or metadata. Off
unless a standard variable names an endpoint (OTEL_EXPORTER_OTLP_ENDPOINT or its TRACES form) and the packages
of `vivace[otel]` are there; until then nothing of them is imported. Does not own sampling, batches or the
exporter's headers: the SDK reads the other OTEL_* variables itself.
"""

import logging
import os
import threading
import time
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from vivace import __version__
from vivace.protocol.shapes.outcomes import Broken, Ended, Terminal
from vivace.protocol.shapes.requests import ResponseCreate
from vivace.server.watch.turn_meter import OTHER, TurnMeter, is_code

ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
CLOSE_S = 2.0
CODEX_TRACEPARENT = "ws_request_header_traceparent"  # in client_metadata: a socket has headers only once

log = logging.getLogger(__name__)


def start_tracing(environ: Mapping[str, str] = os.environ) -> "Tracing | None":
    """Return a tracer for the endpoint that the environment names, or None if it names none."""
    is_disabled = environ.get("OTEL_SDK_DISABLED", "").lower() == "true"
    if is_disabled or not any(environ.get(name) for name in ENDPOINTS):
        return None
    exporters = environ.get("OTEL_TRACES_EXPORTER") or "otlp"
    protocol = next((environ[name] for name in PROTOCOLS if environ.get(name)), "http/protobuf")
    if exporters == "none":
        return None
    if exporters != "otlp" or protocol != "http/protobuf":
        log.warning("no traces: only otlp over http/protobuf is known, not %s over %s", exporters, protocol)
        return None
    try:
        return _exporting(environ)
    except ImportError:
        log.warning("no traces: an endpoint for them is set, but they need `vivace extras add otel`")
    except Exception:
        log.exception("no traces: they could not be set up")
    return None


def _exporting(environ: Mapping[str, str]) -> "Tracing":
    otlp = import_module("opentelemetry.exporter.otlp.proto.http.trace_exporter")
    export = import_module("opentelemetry.sdk.trace.export")
    resources = import_module("opentelemetry.sdk.resources")
    sdk = import_module("opentelemetry.sdk.trace")
    about = {"service.version": __version__}
    is_named = "service.name=" in environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    if not is_named and not environ.get("OTEL_SERVICE_NAME"):
        about["service.name"] = "vivace"
    provider = sdk.TracerProvider(resource=resources.Resource.create(about), shutdown_on_exit=False)
    provider.add_span_processor(export.BatchSpanProcessor(otlp.OTLPSpanExporter()))
    return Tracing(provider)


class Tracing:
    """Looks everything of OpenTelemetry up by name, since it is an optional extra."""

    def __init__(self, provider: Any) -> None:
        self._provider = provider
        self._tracer = provider.get_tracer("vivace", __version__)
        self._trace = import_module("opentelemetry.trace")
        self._propagator = import_module(
            "opentelemetry.trace.propagation.tracecontext"
        ).TraceContextTextMapPropagator()

    def turn_began(
        self,
        request: ResponseCreate,
        *,
        response_id: str,
        model: str,
        traceparent: str = "",
        provider: str = "vivace",
    ) -> "TurnSpan":
        """Begin a span, below the client's own if the client sent one."""
        said = (request.client_metadata or {}).get(CODEX_TRACEPARENT)
        carrier = {"traceparent": said if isinstance(said, str) else traceparent}
        begun_ns = time.time_ns()
        span = self._tracer.start_span(
            f"{_operation(request)} {model}",
            context=self._propagator.extract(carrier),
            kind=self._trace.SpanKind.SERVER,
            attributes=_asked(request, response_id, model, provider),
            start_time=begun_ns,
        )
        return TurnSpan(self, span, begun_ns, model)

    def close(self) -> None:
        """Export what is left, for 2 s at most. The SDK alone would try for half a minute."""
        closing = threading.Thread(target=self._provider.shutdown, daemon=True)
        closing.start()
        closing.join(CLOSE_S)

    def headers(self, span: Any) -> dict[str, str]:
        carrier: dict[str, str] = {}
        self._propagator.inject(carrier, self._trace.set_span_in_context(span))
        return carrier

    def stage(self, parent: Any, name: str, begun_ns: int, ended_ns: int) -> None:
        context = self._trace.set_span_in_context(parent)
        self._tracer.start_span(name, context=context, start_time=begun_ns).end(ended_ns)

    def mark_failed(self, span: Any) -> None:
        span.set_status(self._trace.Status(self._trace.StatusCode.ERROR))


class TurnSpan:
    def __init__(self, tracing: Tracing, span: Any, begun_ns: int, model: str) -> None:
        self._tracing = tracing
        self._span = span
        self._begun_ns = begun_ns
        self._model = model

    @property
    def headers(self) -> dict[str, str]:
        """Return headers for a request to an upstream, so that its spans stand below this one."""
        return self._tracing.headers(self._span)

    def ended(self, outcome: Terminal, meter: TurnMeter) -> None:
        ended_ns = self._begun_ns + int(meter.passed_s * 1e9)
        if self._span.is_recording():
            self._span.set_attributes(_answered(outcome, meter, self._model))
            if isinstance(outcome, Ended):
                self._stages(outcome, meter, ended_ns)
            else:
                self._tracing.mark_failed(self._span)
        self._span.end(ended_ns)

    def _stages(self, ended: Ended, meter: TurnMeter, ended_ns: int) -> None:
        """Add child spans for the stages of the waterfall, in their order, within the turn."""
        times, begun_ns = ended.waterfall, self._begun_ns
        waited_ns = begun_ns + _ns(times.queue_ms + times.tokenize_ms)
        spoken_ns = begun_ns + _ns((meter.first_token_s or 0.0) * 1e3)
        if meter.first_token_s is None:
            spoken_ns = waited_ns + _ns(times.restore_ms + times.prefill_ms)
        for name, from_ns, upto_ns in (
            ("queue", begun_ns, begun_ns + _ns(times.queue_ms)),
            ("prefill", spoken_ns - _ns(times.prefill_ms), spoken_ns),
            ("decode", spoken_ns, spoken_ns + _ns(times.decode_ms)),
        ):
            if upto_ns > from_ns:
                from_ns = min(max(from_ns, begun_ns), ended_ns)
                self._tracing.stage(self._span, name, from_ns, min(max(upto_ns, from_ns), ended_ns))


def _operation(request: ResponseCreate) -> str:
    if request.is_generating:
        return "chat"
    return "score" if request.candidates else "prefill"


def _asked(request: ResponseCreate, response_id: str, model: str, provider: str) -> dict[str, Any]:
    attributes = {
        "gen_ai.operation.name": _operation(request),
        "gen_ai.provider.name": provider,
        "gen_ai.request.model": model,
        "gen_ai.response.id": response_id,
        "gen_ai.output.type": "json" if request.text and request.text.format.type != "text" else "text",
        "gen_ai.request.stream": request.stream,
        "gen_ai.request.max_tokens": request.max_output_tokens,
        "gen_ai.request.temperature": request.temperature,
        "gen_ai.request.top_p": request.top_p,
        "gen_ai.request.top_k": request.top_k or None,
        "gen_ai.request.seed": request.seed,
        "gen_ai.request.presence_penalty": request.presence_penalty or None,
        "gen_ai.request.frequency_penalty": request.frequency_penalty or None,
        "gen_ai.request.reasoning.level": request.effort,
        "vivace.tier": request.tier,
    }
    return {name: value for name, value in attributes.items() if value is not None}


def _answered(outcome: Terminal, meter: TurnMeter, model: str) -> dict[str, Any]:
    attributes: dict[str, Any] = {"gen_ai.response.model": model}
    if meter.first_token_s is not None:
        attributes["gen_ai.server.time_to_first_token"] = meter.first_token_s
    if meter.abort:
        attributes["vivace.abort"] = meter.abort
    if isinstance(outcome, Broken):
        code = outcome.code if is_code(outcome.code) else OTHER
        return attributes | {"gen_ai.response.finish_reasons": ["error"], "error.type": code}
    usage, times = outcome.usage, outcome.waterfall
    return attributes | {
        "gen_ai.response.finish_reasons": [outcome.reason if is_code(outcome.reason) else OTHER],
        "gen_ai.usage.input_tokens": usage.input_tokens,
        "gen_ai.usage.output_tokens": usage.output_tokens,
        "gen_ai.usage.cache_read.input_tokens": usage.input_tokens_details.cached_tokens,
        "gen_ai.usage.reasoning.output_tokens": usage.output_tokens_details.reasoning_tokens,
        "vivace.draft.accepted_tokens": times.draft_accepted,
        "vivace.draft.rejected_tokens": times.draft_rejected,
        "vivace.engine.restarts": times.restarts,
    }


def _ns(ms: float) -> int:
    return int(ms * 1e6)
