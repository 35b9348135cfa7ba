"""One turn's part in the metrics, from its acceptance to its end.

Owns when which number of a turn counts. `tokens` is called for every pass of the model, and takes 0.5 µs; all
else is counted once a turn. Calls after the end, or a second end, change nothing.

The time between two tokens is the time between two frames: a pass of the model gives one frame, with as many
tokens as its draft was right about.
"""

import re
from collections.abc import Callable

from vivace.protocol.shapes.outcomes import Broken, Ended, Terminal
from vivace.server.watch.metrics_text import MetricsPage

OTHER = "other"
TURN_LABELS = ("model_name", "tier")
ABORTS = (
    *("interrupted", "steered", "cancelled", "client_gone", "slow_client", "deadline", "shutdown", OTHER),
)
FINISHED = {"stop": "stop", "length": "length", "appended": "prefill", "scored": "score"}
FINISHED_REASONS = (*FINISHED.values(), "abort", "error")
MAX_CODES = 32  # of failures; an upstream may say anything

FIRST_TOKEN_S = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75),
    *(1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0),
)
TOKEN_S = (
    *(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75),
    *(1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0),
)
REQUEST_S = (
    *(0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.5, 0.8),
    *(1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0),
    *(120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0),
)
SHORT_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
TOKENS = [mantissa * 10.0**power for power in range(5) for mantissa in (1, 2, 5)] + [100_000.0]


class TurnFamilies:
    """All metrics of turns."""

    def __init__(self, page: MetricsPage) -> None:
        self._add_times(page, *TURN_LABELS)
        self._add_tokens(page, *TURN_LABELS)
        self._add_ends(page, *TURN_LABELS)
        self._codes: set[str] = set()

    def _add_times(self, page: MetricsPage, *by: str) -> None:
        """Add how many turns run and wait, and how long each part of a turn takes."""
        self.running = page.gauge("num_requests_running", "Turns that an engine or upstream works on.", *by)
        self.waiting = page.gauge("num_requests_waiting", "Turns that were accepted and have not begun.", *by)
        self.first_token = page.histogram(
            "time_to_first_token_seconds",
            "From the request to its first token, waiting included.",
            FIRST_TOKEN_S,
            *by,
        )
        self.between = page.histogram(
            "inter_token_latency_seconds",
            "Between two frames of tokens of a turn. One pass of the model gives one frame.",
            TOKEN_S,
            *by,
        )
        self.per_token = page.histogram(
            "request_time_per_output_token_seconds",
            "A turn's decode time divided by its tokens after the first; one value a turn.",
            TOKEN_S,
            *by,
        )
        self.whole = page.histogram(
            "e2e_request_latency_seconds",
            "From the request to its end; only turns that came to their own end (stop, length).",
            REQUEST_S,
            *by,
        )
        self.queue = page.histogram(
            "request_queue_time_seconds",
            "Waiting for a place, for an engine to start or switch, for the first pass.",
            REQUEST_S,
            *by,
        )
        self.prefill = page.histogram(
            "request_prefill_time_seconds",
            "Passes over the prompt; an upstream's is not known.",
            REQUEST_S,
            *by,
        )
        self.decode = page.histogram(
            "request_decode_time_seconds",
            "From the first token to the last; only turns that came to their own end.",
            REQUEST_S,
            *by,
        )

    def _add_tokens(self, page: MetricsPage, *by: str) -> None:
        """Add tokens: prompts and answers, those found in the KV, and drafts."""
        self.prompt_size = page.histogram(
            "request_prompt_tokens", "Prompt tokens of a turn, cached ones too.", TOKENS, *by
        )
        self.answer_size = page.histogram(
            "request_generation_tokens", "Generated tokens of a turn.", TOKENS, *by
        )
        self.prompt = page.counter("prompt_tokens_total", "Prompt tokens, cached ones too.", *by)
        self.generation = page.counter("generation_tokens_total", "Generated tokens, as they come.", *by)
        self.queried = page.counter(
            "prefix_cache_queries_total", "Prompt tokens that were looked for in the KV.", *by
        )
        self.hits = page.counter(
            "prefix_cache_hits_total", "Prompt tokens whose KV was there, in memory or on disk.", *by
        )
        self.restored = page.counter(
            "kv_restored_tokens_total", "Prompt tokens whose KV was read back from disk.", *by
        )
        self.drafted = page.counter(
            "spec_decode_num_draft_tokens_total", "Tokens drafted, accepted and rejected ones.", *by
        )
        self.accepted = page.counter(
            "spec_decode_num_accepted_tokens_total", "Drafted tokens that the model chose too.", *by
        )
        self.rejected = page.counter(
            "spec_decode_num_rejected_tokens_total", "Drafted tokens that the model did not choose.", *by
        )
        self.passes = page.counter(
            "forward_passes_total",
            "Forward passes that turns took part in; one that two turns share counts for both.",
            *by,
        )

    def _add_ends(self, page: MetricsPage, *by: str) -> None:
        """Add how turns end, and how soon after an abort."""
        self.success = page.counter(
            "request_success_total",
            "Turns that are over: stop, length, abort, error, prefill (nothing was to be generated), score.",
            *by,
            "finished_reason",
        )
        self.aborts = page.counter(
            "request_aborts_total",
            "Turns ended early: interrupted, steered, cancelled, client_gone, slow_client, deadline, "
            "shutdown, other.",
            *by,
            "reason",
        )
        self.failures = page.counter(
            "request_failures_total", "Turns that failed, by the code of their error.", *by, "code"
        )
        self.to_free = page.histogram(
            "abort_to_free_seconds",
            "From an abort to when nothing of the turn is held any more.",
            SHORT_S,
            *by,
        )

    def code(self, code: str) -> str:
        """Return a failure's code as a label; `other` if it is no code, or one too many."""
        if code not in self._codes:
            if len(self._codes) >= MAX_CODES or not is_code(code):
                return OTHER
            self._codes.add(code)
        return code


class TurnSeries:
    """The series of one model and tier, looked up once."""

    def __init__(self, families: TurnFamilies, model: str, tier: str) -> None:
        self._families = families
        self._labels = by = (model, tier)
        self.running, self.waiting = families.running.at(*by), families.waiting.at(*by)
        self.first_token, self.between = families.first_token.at(*by), families.between.at(*by)
        self.per_token, self.whole = families.per_token.at(*by), families.whole.at(*by)
        self.queue, self.prefill = families.queue.at(*by), families.prefill.at(*by)
        self.decode, self.to_free = families.decode.at(*by), families.to_free.at(*by)
        self.prompt_size, self.answer_size = families.prompt_size.at(*by), families.answer_size.at(*by)
        self.prompt, self.generation = families.prompt.at(*by), families.generation.at(*by)
        self.queried, self.hits = families.queried.at(*by), families.hits.at(*by)
        self.restored, self.passes = families.restored.at(*by), families.passes.at(*by)
        self.drafted, self.accepted = families.drafted.at(*by), families.accepted.at(*by)
        self.rejected = families.rejected.at(*by)
        self.success = {reason: families.success.at(*by, reason) for reason in FINISHED_REASONS}
        self.aborts = {reason: families.aborts.at(*by, reason) for reason in ABORTS}

    def failed(self, code: str) -> None:
        self._families.failures.at(*self._labels, self._families.code(code)).value += 1


class TurnMeter:
    __slots__ = (
        *("_aborted", "_clock", "_counted", "_first", "_is_running", "_last", "_own", "_series"),
        *("abort", "began", "free_s", "is_over"),
    )

    def __init__(
        self, series: TurnSeries, clock: Callable[[], float], own: "TurnMeter | None" = None
    ) -> None:
        self._series = series
        self._own = own  # the same turn, among those of its tenant
        self._clock = clock
        self._counted = 0  # tokens, so far
        self._first: float | None = None  # when the first frame came, and the last one, and the abort
        self._last: float | None = None
        self._aborted: float | None = None
        self._is_running = False
        self.began = clock()
        self.abort = ""  # why it was ended early, if it was
        self.free_s: float | None = None  # from the abort to the end
        self.is_over = False
        series.waiting.value += 1

    @property
    def first_token_s(self) -> float | None:
        return None if self._first is None else self._first - self.began

    @property
    def passed_s(self) -> float:
        return self._clock() - self.began

    def started(self) -> None:
        """Count the turn as running. May be called again when another engine takes it over."""
        if self._own:
            self._own.started()
        if not self._is_running and not self.is_over:
            self._is_running = True
            self._series.waiting.value -= 1
            self._series.running.value += 1

    def tokens(self, count: int) -> None:
        """Count one frame of tokens. 0 means unknown: then the usage at the end is counted."""
        if self._own:
            self._own.tokens(count)
        now = self._clock()
        if self.is_over:
            return
        if self._last is not None:
            self._series.between.observe(now - self._last)
        else:
            self._first = now
            self._series.first_token.observe(now - self.began)
        self._last = now
        self._counted += count
        self._series.generation.value += count

    def aborting(self, reason: str) -> None:
        """Note why the turn will end early. The first reason counts; `interrupted` gives way to any other."""
        if self._own:
            self._own.aborting(reason)
        if self.is_over:
            return
        if self._aborted is None:
            self._aborted = self._clock()
        if self.abort in ("", "interrupted"):
            self.abort = reason if reason in ABORTS else OTHER

    def withdraw(self) -> None:
        """Take the turn out of all numbers: its request was not accepted after all."""
        if self._own:
            self._own.withdraw()
        if not self.is_over:
            self.is_over = True
            (self._series.running if self._is_running else self._series.waiting).value -= 1

    def ended(self, outcome: Terminal) -> None:
        """Count the end of the turn, when nothing is held for it any more."""
        if self._own:
            self._own.ended(outcome)
        if self.is_over:
            return
        self.is_over = True
        now, series = self._clock(), self._series
        (series.running if self._is_running else series.waiting).value -= 1
        if isinstance(outcome, Broken):
            series.success["error"].value += 1
            series.failed(outcome.code)
        else:
            self._account(outcome, now)
        if self.abort:
            series.aborts[self.abort].value += 1
            if self._aborted is not None:
                self.free_s = now - self._aborted
                series.to_free.observe(self.free_s)

    def _account(self, ended: Ended, now: float) -> None:
        series, usage, times = self._series, ended.usage, ended.waterfall
        reason = FINISHED.get(ended.reason, "abort")
        series.success[reason].value += 1
        if reason != "abort":
            self.abort, self._aborted = "", None  # it came too late
        elif not self.abort:
            self.abort = ended.reason if ended.reason in ABORTS else OTHER
        cached = usage.input_tokens_details.cached_tokens
        for counter, amount in (
            (series.prompt, usage.input_tokens),
            (series.queried, usage.input_tokens),
            (series.hits, cached),
            (series.restored, times.restored_tokens),
            (series.generation, max(0, usage.output_tokens - self._counted)),
            (series.passes, times.steps),
            (series.drafted, times.draft_accepted + times.draft_rejected),
            (series.accepted, times.draft_accepted),
            (series.rejected, times.draft_rejected),
        ):
            counter.value += amount
        series.queue.observe(times.queue_ms / 1e3)
        if times.prefill_ms:
            series.prefill.observe(times.prefill_ms / 1e3)
        if reason in ("stop", "length"):
            self._time(usage.output_tokens, now)
            series.prompt_size.observe(usage.input_tokens)
            series.answer_size.observe(usage.output_tokens)

    def _time(self, output_tokens: int, now: float) -> None:
        """Record durations. Only turns that came to their own end say how long turns take."""
        self._series.whole.observe(now - self.began)
        if self._first is not None and self._last is not None:
            decode_s = self._last - self._first
            self._series.decode.observe(decode_s)
            if output_tokens > 1:
                self._series.per_token.observe(decode_s / (output_tokens - 1))


def is_code(text: str) -> bool:
    """Return whether the text is a code, not a sentence. Only codes go into labels, logs and traces."""
    return re.fullmatch(r"[a-zA-Z][a-zA-Z0-9_.-]{0,63}", text) is not None
