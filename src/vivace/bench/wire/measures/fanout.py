"""Many sockets at once, each with a turn of a thousand tokens a second, on two cores.

The tokens are a scripted engine's, each in a frame of its own. One is delivered in time if the client has it
when the engine is due to have made the last of its turn: a server that falls behind delivers less, one that
joins tokens into fewer events does not. Client, server and engine share the two cores.
"""

import os
import selectors
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from vivace.bench.engine.context import Section
from vivace.bench.figures import median, percentile
from vivace.bench.served.clients import SocketClient
from vivace.bench.served.own_server import BenchServer
from vivace.bench.served.turns import MeasuredTurn
from vivace.bench.wire.stamps import made_ns, noise

STEP_MS = 1.0
CORES = 2
SILENCE_S = 30.0


def measure_fanout(server: BenchServer, sockets: int, tokens: int) -> Section:
    stamps = server.file("stamps")
    replies = {_name(number): noise(tokens, number) for number in range(sockets)}
    model = server.script(
        replies=replies, step_ms=STEP_MS, context_tokens=1 << 20, stamps=str(stamps), is_engineless=True
    )
    with _on_two_cores(server) as cores, ExitStack() as stack:
        clients = [stack.enter_context(SocketClient(server.address)) for _ in range(sockets)]
        for client in clients:  # the engine starts, and every connection has had a turn
            _read_all([client], model, {client: "stream 00"}, most=8)
        measured = _read_all(clients, model, dict(zip(clients, replies, strict=True)), most=tokens)
    made = [made_ns(stamps, row, tokens) for row in range(sockets)]
    return _figures(measured, made, cores)


def _read_all(
    clients: list[SocketClient], model: str, inputs: dict[SocketClient, str], most: int
) -> list[MeasuredTurn]:
    """Begin a turn on every socket and read all of them to their ends."""
    measured = {client: MeasuredTurn(time.monotonic_ns()) for client in clients}
    with selectors.DefaultSelector() as selector:
        for client in clients:
            selector.register(client.link, selectors.EVENT_READ, client)
            client.send({"model": model, "input": inputs[client], "store": False, "max_output_tokens": most})
        while waiting := selector.get_map():
            ready = selector.select(SILENCE_S)
            assert ready, f"{len(waiting)} turns say nothing any more"
            for key, _ in ready:
                client = key.data
                for event in client.read():
                    measured[client].receive(event)
                if measured[client].answer:
                    selector.unregister(client.link)
    return list(measured.values())


def _figures(measured: list[MeasuredTurn], made: list[list[int]], cores: int) -> Section:
    tokens, seconds = len(made[0]), len(made[0]) * STEP_MS / 1e3
    in_time = in_time_made = 0
    delays_ms: list[float] = []
    for one, was_made in zip(measured, made, strict=True):
        assert len(one.arrived_ns) == tokens, "every token arrived"
        end = was_made[0] + tokens * STEP_MS * 1e6
        in_time += sum(arrived <= end for arrived in one.arrived_ns)
        in_time_made += sum(each <= end for each in was_made)
        delays_ms += [(a - m) / 1e6 for a, m in zip(one.arrived_ns, was_made, strict=True)]
    return {
        "tok_s": in_time / seconds,
        "delivered_share": in_time / (tokens * len(measured)),
        "made_share": in_time_made / (tokens * len(measured)),
        "delay_ms": median(delays_ms),
        "delay_ms_p99": percentile(delays_ms, 0.99),
        "tokens_per_delta": tokens * len(measured) / sum(one.deltas for one in measured),
        "sockets": len(measured),
        "tokens": tokens,
        "cores": cores,
    }


@contextmanager
def _on_two_cores(server: BenchServer) -> Iterator[int]:
    """Pin client, server and engine to the same two cores where the system allows. Yield their number."""
    if not hasattr(os, "sched_setaffinity"):
        yield os.cpu_count() or 1
        return
    before = {pid: os.sched_getaffinity(pid) for pid in (0, server.address.pid)}
    chosen = set(sorted(before[0])[:CORES])
    for pid in before:
        os.sched_setaffinity(pid, chosen)
    try:
        yield len(chosen)
    finally:
        for pid, cores in before.items():
            os.sched_setaffinity(pid, cores)


def _name(number: int) -> str:
    return f"stream {number:02}"
