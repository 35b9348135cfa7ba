"""What a server says of itself: to `vivace status`, and to a client that asks whether it is the right one.

Owns shapes only.
"""

from typing import Literal

import msgspec

from vivace.protocol.shapes.events import WaitProgress


class Health(msgspec.Struct, frozen=True):
    """`GET /healthz`, for anyone on this machine: enough to know a server by, and no more."""

    pid: int
    version: str
    status: str = "ok"


class OneEngine(msgspec.Struct, frozen=True):
    """One of a model's engines: there are several where there are several GPUs."""

    pid: int | None  # None: it starts
    place: str = ""  # which runner on which device
    is_ready: bool = False  # it would answer now
    turns: int = 0
    sessions: int = 0
    kv_tokens: int = 0
    kv_cells: int = 0
    loading: WaitProgress | None = None


class EngineStatus(msgspec.Struct, frozen=True):
    model: str
    is_ready: bool
    pid: int | None
    threads: int
    load_ms: float
    turns: int
    sessions: int
    kv_tokens: int
    kv_cells: int
    session_tokens: int  # the longest that one session may be
    trained_tokens: int  # what the model was trained for; beyond it, YaRN stretches its positions
    parked_bytes: int  # KV on disk
    tokens_prefilled: int
    tokens_generated: int
    device: str = "cpu"  # what computes: cpu, cuda, vulkan or metal
    place: str = ""  # the same for people: which runner on which device
    why_no_gpu: str = ""  # if there is one that could not be used
    parked_memory_bytes: int = 0  # KV of idle sessions in host memory, for a GPU
    loaded: list[str] = []  # all models in memory, the one used last first
    engines: list[OneEngine] = []  # of the model; the numbers above are of all of them together
    loading: WaitProgress | None = None  # how far the model is, while none of its engines is ready

    @property
    def state(self) -> str:
        """Say whether it would answer now, or how far it is."""
        loading = f"loading, {self.loading.amount}" if self.loading else "not ready"
        return "ready" if self.is_ready else loading


class TuningStatus(msgspec.Struct, frozen=True):
    """How far the server is with measuring how this machine runs the model best."""

    state: Literal["off", "waiting", "running", "done", "unsuited", "failed"]
    step: int = 0  # while it runs: step of steps
    steps: int = 0
    text: str = ""  # what was chosen and why, or what it waits for


class ServerStatus(msgspec.Struct, frozen=True):
    """`GET /v1/vivace/status`. A tenant's key is told of its own turns only, and of no file."""

    pid: int
    version: str
    port: int
    uptime_s: float
    answers: int  # running now
    log_file: str  # for the owner; else ""
    engine: EngineStatus
    tuning: TuningStatus | None = None


class HistorySample(msgspec.Struct, frozen=True):
    """How the server was in a few seconds. A figure is 0 where nothing was measured."""

    at_s: float  # Unix time
    tokens_per_s: float  # of a turn, while it wrote
    first_token_ms: float  # mean of the turns that began to write
    cached_share: float  # of the prompts' tokens, those that were in the KV already
    turns: int  # that ended


class ServerHistory(msgspec.Struct, frozen=True):
    """`GET /v1/vivace/history`: the last hour, only the times in which there was work."""

    every_s: float
    samples: list[HistorySample]
