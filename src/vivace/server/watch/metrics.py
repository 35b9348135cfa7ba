"""What the server counts: `GET /metrics`, with the names vLLM's users know under the prefix `vivace:`.

Owns which numbers there are; docs/reference/metrics.md is generated from them. Does not own the text
format (`metrics_text`), nor when something happens: the server calls. A tenant sees its own turns. No label
ever holds a key, an id or any text of a turn, and names that clients choose make a bounded number of series.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from vivace import __version__
from vivace.protocol.shapes.status import EngineStatus
from vivace.server.watch.metrics_text import MetricsPage
from vivace.server.watch.turn_meter import OTHER, SHORT_S, TurnFamilies, TurnMeter, TurnSeries

MAX_MODELS, MAX_UPSTREAMS = 32, 16  # with series of their own
MAX_NAME_CHARS = 100
TIERS = ("realtime", "background")
LAG_WINDOW_S = 10.0


class LabelValues:
    """A bounded set of label values that clients may choose. Every value beyond the bound is `other`."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._own: set[str] = set()

    def label(self, name: str) -> str:
        if name not in self._own:
            is_label = 0 < len(name) <= MAX_NAME_CHARS and name.isprintable()
            if not is_label or len(self._own) >= self._limit:
                return OTHER
            self._own.add(name)
        return name


@dataclass(frozen=True)
class Totals:
    """Sums over all turns since the start."""

    generated: float = 0  # tokens
    writing_s: float = 0  # between the first and the last token of each turn
    begun: int = 0  # turns that wrote something
    first_token_s: float = 0  # the sum of their waits
    queried: float = 0  # prompt tokens that were looked for in the KV
    hits: float = 0  # of them, those that were there
    ended: float = 0  # turns


class TurnMetrics:
    """What turns add up to: those of everybody, or of one tenant."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._models = LabelValues(MAX_MODELS)
        self._turns: dict[tuple[str, str], TurnSeries] = {}
        self.page = MetricsPage("vivace:")
        self._turn_families = TurnFamilies(self.page)

    def announce_models(self, names: Iterable[str]) -> None:
        """Reserve labels for the models that are served, before clients can name others.

        The series of the first one exist from the start.
        """
        for index, name in enumerate(names):
            self._models.label(name)
            if index == 0:
                self.series(name, TIERS[0])

    def series(self, model: str, tier: str) -> TurnSeries:
        """Return the series of a model and tier; make them at the first call."""
        labels = self._models.label(model), _tier(tier)
        series = self._turns.get(labels)
        if series is None:
            series = self._turns[labels] = TurnSeries(self._turn_families, *labels)
        return series

    @property
    def under_way(self) -> int:
        """Return how many turns run or wait."""
        return int(sum(each.running.value + each.waiting.value for each in self._turns.values()))

    def totals(self) -> Totals:
        """Return what all turns add up to."""
        all_turns = list(self._turns.values())
        return Totals(
            generated=sum(each.generation.value for each in all_turns),
            writing_s=sum(each.between.sum for each in all_turns),
            begun=sum(each.first_token.count for each in all_turns),
            first_token_s=sum(each.first_token.sum for each in all_turns),
            queried=sum(each.queried.value for each in all_turns),
            hits=sum(each.hits.value for each in all_turns),
            ended=sum(number.value for each in all_turns for number in each.success.values()),
        )


class Metrics(TurnMetrics):
    """All that the server counts, and the turns of each tenant apart."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        super().__init__(clock)
        page = self.page
        self._upstreams = LabelValues(MAX_UPSTREAMS)
        self.tenants: dict[str, TurnMetrics] = {}  # the owner makes them: as many as there are keys
        self._worst_lag_s = [0.0, 0.0]  # in this window, in the one before
        self._window_began = clock()
        page.gauge("build_info", "Always 1; the version is in the label.", "version").at(
            __version__
        ).value = 1

        self._kv_used = page.gauge(
            "kv_cache_usage_perc", "Used share of the KV cells; 1 is all of them.", "model_name"
        )
        self._is_up = page.gauge("engine_up", "1 if the engine is ready to answer.", "model_name")
        self._sessions = page.gauge("engine_sessions", "Sessions that the engine knows.", "model_name")
        self._parked = page.gauge("kv_parked_bytes", "KV of idle sessions on disk.", "model_name")
        self._parked_memory = page.gauge(
            "kv_parked_memory_bytes", "KV of idle sessions in host memory, for a GPU.", "model_name"
        )
        self._prefilled = page.counter(
            "engine_prefilled_tokens_total",
            "Tokens prefilled since the engine's start, typed-ahead text included.",
            "model_name",
        )
        self._generated = page.counter(
            "engine_generated_tokens_total", "Tokens generated since the engine's start.", "model_name"
        )
        self._restarts = page.counter("engine_restarts_total", "Engines started after one had died.").at()
        self._sockets = page.gauge("sockets_open", "WebSockets that are open.").at()
        self._upstream_requests = page.counter(
            "upstream_requests_total",
            "Requests to upstreams: completed, failed, timeout, cancelled, other.",
            "upstream",
            "outcome",
        )
        self._queue_refusals = page.counter(
            "queue_refusals_total", "Requests refused (429) because the queue was full.", "tier"
        )
        self._rate_refusals = page.counter(
            "rate_refusals_total",
            "Requests refused (429) by a key's limit on requests or tokens a minute.",
            "tier",
            "limit",
        )
        self._store_write = page.histogram(
            "store_write_seconds", "Time to make a response durable.", SHORT_S
        ).at()
        self._lag = page.histogram(
            "loop_lag_seconds",
            "How late the event loop came to a timer that is set ten times a second.",
            SHORT_S,
        ).at()
        self._lag_worst = page.gauge(
            "loop_lag_max_seconds", "The worst lag of the last 10 to 20 seconds."
        ).at()

    def of(self, tenant: str) -> TurnMetrics:
        """Return what this tenant may see of them: its own turns."""
        if tenant not in self.tenants:
            self.tenants[tenant] = TurnMetrics(self._clock)
        return self.tenants[tenant]

    def turn_began(self, model: str, tier: str, tenant: str = "") -> TurnMeter:
        """Count an accepted request as waiting. Return the meter of its turn. "": the owner's."""
        own = TurnMeter(self.of(tenant).series(model, tier), self._clock) if tenant else None
        return TurnMeter(self.series(model, tier), self._clock, own)

    def sockets(self, count: int) -> None:
        """Set how many WebSockets are open."""
        self._sockets.value = count

    def upstream_answered(self, upstream: str, outcome: str) -> None:
        """Count a request to an upstream. `outcome`: completed, failed, timeout or cancelled."""
        outcome = outcome if outcome in ("completed", "failed", "timeout", "cancelled") else OTHER
        self._upstream_requests.at(self._upstreams.label(upstream), outcome).value += 1

    def refused(self, limit: str, tier: str) -> None:
        """Count a request that was answered 429. `limit`: queue, requests or tokens."""
        if limit == "queue":
            self._queue_refusals.at(_tier(tier)).value += 1
        else:
            limit = limit if limit in ("requests", "tokens") else OTHER
            self._rate_refusals.at(_tier(tier), limit).value += 1

    def engine_restarted(self) -> None:
        self._restarts.value += 1

    @contextmanager
    def store_write(self) -> Iterator[None]:
        """Measure how long the block takes to make a response durable. A failure is not counted."""
        begun = self._clock()
        yield
        self._store_write.observe(self._clock() - begun)

    def loop_lagged(self, seconds: float) -> None:
        self._lag.observe(seconds)
        self._move_window()
        self._worst_lag_s[0] = max(self._worst_lag_s[0], seconds)

    def render(self, engines: Iterable[EngineStatus] = ()) -> bytes:
        """Return the page. Engines are shown as they are now; one that is gone is not shown."""
        self._move_window()
        self._lag_worst.value = max(self._worst_lag_s)
        for family in (
            *(self._kv_used, self._is_up, self._sessions, self._parked, self._parked_memory),
            *(self._prefilled, self._generated),
        ):
            family.forget()
        for engine in engines:
            self._show(engine)
        return self.page.render()

    def _show(self, engine: EngineStatus) -> None:
        model = self._models.label(engine.model)
        self._is_up.at(model).value = int(engine.is_ready)
        if not engine.kv_cells:
            return  # it has not answered: a zero would look like a restart
        self._kv_used.at(model).value = engine.kv_tokens / engine.kv_cells
        self._sessions.at(model).value = engine.sessions
        self._parked.at(model).value = engine.parked_bytes
        self._parked_memory.at(model).value = engine.parked_memory_bytes
        self._prefilled.at(model).value = engine.tokens_prefilled
        self._generated.at(model).value = engine.tokens_generated

    def _move_window(self) -> None:
        passed_s = self._clock() - self._window_began
        if passed_s >= LAG_WINDOW_S:
            self._window_began += passed_s
            self._worst_lag_s = [0.0, self._worst_lag_s[0] if passed_s < 2 * LAG_WINDOW_S else 0.0]


def _tier(tier: str) -> str:
    return tier if tier in TIERS else OTHER
