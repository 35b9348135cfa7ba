"""Requests about figures: how fast the server was, and what benches and evals have found.

Owns nothing but where they are read from. Does not measure.
"""

import asyncio

import msgspec

from vivace.client import http, warm
from vivace.config import Settings
from vivace.errors import ServerGone
from vivace.kept_results import read_results
from vivace.protocol.shapes.status import ServerHistory
from vivace.web.face import Face
from vivace.web.messages import figure_requests
from vivace.web.messages.answers import KeptResult, MetricsAnswer, ResultRows, Sample
from vivace.web.operations.table import answers

MAX_RESULTS = 500


@answers(figure_requests.MetricsRead)
async def read_metrics(face: Face, _: figure_requests.MetricsRead) -> MetricsAnswer:
    history = await asyncio.to_thread(_read_history, face.host.settings)
    samples = [Sample(**msgspec.structs.asdict(each)) for each in history.samples]
    return MetricsAnswer(samples=samples, every_s=history.every_s)


@answers(figure_requests.ResultsList)
async def list_results(face: Face, request: figure_requests.ResultsList) -> ResultRows:
    limit = max(0, min(request.limit, MAX_RESULTS))
    found = await asyncio.to_thread(read_results, face.host.settings, limit)
    rows = [KeptResult(name=each.name, at_s=each.at_s, result=each.result) for each in found]
    return ResultRows(results=rows)


def _read_history(settings: Settings) -> ServerHistory:
    address = warm.running_server(settings)
    try:
        status, body = http.get(address.port, "/v1/vivace/history", address.token, timeout_s=5.0)
        if status == 200:
            return msgspec.json.decode(body, type=ServerHistory)
    except (OSError, msgspec.DecodeError) as error:
        raise ServerGone("The server did not answer.", "See `vivace status`.") from error
    raise ServerGone(f"The server answered with status {status}.", "See `vivace status`.")
