"""Coding clients on a server of the bench's own: what side requests, Anthropic's API and a restart cost.

    .venv/bin/python benchmarks/clients.py [--model NAME] [--rounds N] [--only side|doors|restart] [--json]

`side`: the first token of a turn alone, and while the client's own title (about 500 tokens) or memory request
(about 4,000) is read, which was sent just before. `doors`: the first token of a second turn through
`/v1/messages`, which sends the whole history again, and of one over the WebSocket that stays open, with a
model that computes nothing (a script in the tokens of the real one): what is left is the server. `restart`:
the first turn of the next day through `/v1/messages`, after the server was stopped and started; the peer is
the day before, when all was read. Rounds are interleaved, figures are medians, prompts are new in each round.
"""

import argparse
import contextlib
import http.client
import json
import os
import platform
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from vivace.bench.served.clients import SocketClient
from vivace.bench.served.own_server import running
from vivace.client.warm import ServerAddress
from vivace.config import Settings, load_settings
from vivace.engine.tuning.cpu import choose_threads, cpu_features
from vivace.models.download import ensure
from vivace.models.progress import Silent

WORDS = ["alpha", "beta", "list", "sort", "file", "name", "value", "index", "count", "total", "close", "open"]
TITLE = "You are a title generator. You output only a title.\n\n"  # as opencode's begins
MEMORY = "You are now acting as the managed memory extraction subagent for an assistant.\n\n"  # Qwen Code's
SIDES = {"title": (TITLE, 500), "memory": (MEMORY, 4000)}
TURN_TOKENS = 100
DOORS = ((100, 0), (2000, 0), (2000, 8000))  # tokens of a history and of tools
RESTART_TOKENS = (1000, 8000)
CONTEXT_TOKENS = 16384
SETTLE_S = 0.3  # for a side request to be in its prefill, and for one that was left to be over
DAYS = ("2026-11-19", "2026-11-20")
ENDS = ("response.completed", "response.incomplete", "response.failed")


class Answer(NamedTuple):
    first_ms: float
    text: str
    usage: dict[str, Any]
    id: str = ""


def words(count: int) -> str:
    return " ".join(random.choice(WORDS) for _ in range(count))


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


class Client:
    def __init__(self, address: ServerAddress, model: str) -> None:
        self.address, self.model = address, model

    @contextlib.contextmanager
    def posted(self, path: str, body: dict[str, Any]) -> Iterator[http.client.HTTPConnection]:
        """Send a request; the client goes away when the block ends."""
        connection = http.client.HTTPConnection("127.0.0.1", self.address.port, timeout=900)
        headers = {"Authorization": f"Bearer {self.address.token}", "Content-Type": "application/json"}
        try:
            connection.request(
                "POST", path, json.dumps({"model": self.model, "stream": True} | body), headers
            )
            yield connection
        finally:
            connection.close()

    def message(self, **body: Any) -> Answer:
        """Ask through `/v1/messages`."""
        began, first, text = time.perf_counter(), 0.0, ""
        usage: dict[str, Any] = {}
        with self.posted("/v1/messages", {"max_tokens": 4, "temperature": 0} | body) as connection:
            answer = connection.getresponse()
            assert answer.status == 200, answer.read()
            for line in answer:
                if not line.startswith(b"data: {"):
                    continue
                event = json.loads(line.removeprefix(b"data: "))
                if piece := event.get("delta", {}).get("text", ""):
                    first = first or time.perf_counter()
                    text += piece
                usage = event.get("usage", usage)
        return Answer(((first or time.perf_counter()) - began) * 1e3, text, usage)

    def turn(self, socket: SocketClient, **body: Any) -> Answer:
        """Ask over the WebSocket."""
        began, first, text = time.perf_counter(), 0.0, ""
        socket.send({"model": self.model, "max_output_tokens": 4, "temperature": 0} | body)
        while True:
            for event in map(msgspec.json.decode, socket.read()):
                if event["type"] == "response.output_text.delta":
                    first = first or time.perf_counter()
                    text += event["delta"]
                if event["type"] in ENDS:
                    response = event["response"]
                    taken_s = (first or time.perf_counter()) - began
                    return Answer(taken_s * 1e3, text, response["usage"], response["id"])


# ---- side requests -----------------------------------------------------------------------------------


def side(client: Client, rounds: int) -> list[dict[str, Any]]:
    def alone() -> float:
        return client.message(messages=[user(f"Continue: {words(TURN_TOKENS)}")]).first_ms

    def beside(kind: str) -> float:
        """Return the same of a turn that is sent while a side request is read, which is left then."""
        system, tokens = SIDES[kind]
        messages = [{"role": "system", "content": system + words(tokens)}, user("Go.")]
        with client.posted("/v1/chat/completions", {"messages": messages, "max_tokens": 64}):
            time.sleep(SETTLE_S)
            taken = alone()
        time.sleep(SETTLE_S)
        return taken

    measures: dict[str, Callable[[], float]] = {"alone": alone}
    measures |= {"title": lambda: beside("title"), "memory": lambda: beside("memory")}
    times: dict[str, list[float]] = {name: [] for name in measures}
    for number in range(rounds + 1):
        for name, measure in measures.items():
            taken = measure()
            times[name] += [taken] if number else []  # the first round wakes everything
    medians = {name: statistics.median(each) for name, each in times.items()}
    return [
        {"beside": name, "first_token_ms": ms, "of_alone": ms / medians["alone"]}
        for name, ms in medians.items()
    ]


# ---- doors -------------------------------------------------------------------------------------------


def doors(client: Client, rounds: int) -> list[dict[str, Any]]:
    """Time what the server does. Its model computes nothing, but has the tokens of the real one."""
    return [_doors(client, tokens, tools, rounds) for tokens, tools in DOORS]


def _doors(client: Client, tokens: int, tool_tokens: int, rounds: int) -> dict[str, Any]:
    """Time second turns of two conversations that differ in their first word."""
    told, tools = words(tokens), _tools(tool_tokens)
    functions = [
        {"type": "function", "name": tool["name"], "description": tool["description"]}
        | {"parameters": tool["input_schema"], "strict": False}
        for tool in tools
    ]
    begun = user(f"Two {told}")
    said = client.message(messages=[begun], tools=tools)
    history = [begun, {"role": "assistant", "content": said.text}]
    with SocketClient(client.address) as socket:
        first = client.turn(socket, input=f"One {told}", tools=functions)
    posted, sent = [], []
    for number in range(rounds + 1):
        asked = words(10)
        with SocketClient(client.address) as socket:
            second = client.turn(socket, input=asked, previous_response_id=first.id, tools=functions)
        other = client.message(messages=[*history, user(asked)], tools=tools)
        if number:
            sent.append(second.first_ms)
            posted.append(other.first_ms)
    return {
        "history_tokens": tokens,
        "tool_tokens": tool_tokens,
        "messages_ms": statistics.median(posted),
        "socket_ms": statistics.median(sent),
        "added_ms": statistics.median(a - b for a, b in zip(posted, sent, strict=True)),
    }


def _tools(tokens: int) -> list[dict[str, Any]]:
    schema = {"type": "object", "properties": {"path": {"type": "string"}}}
    count = 8 if tokens else 0
    return [
        {"name": f"tool_{number}", "description": words(tokens // 8), "input_schema": schema}
        for number in range(count)
    ]


# ---- the next day ------------------------------------------------------------------------------------


def restart(settings: Settings, rounds: int, lengths: Sequence[int]) -> list[dict[str, Any]]:
    rows = []
    for tokens in lengths:
        days: list[list[Answer]] = [[], []]
        for _ in range(rounds):
            prompt = _prompt(tokens)
            for day, answers in zip(DAYS, days, strict=True):
                with running(settings) as address:
                    client = Client(address, settings.model)
                    client.message(messages=[user("Wake up.")])
                    answers.append(client.message(**_on(prompt, day)))
        usage = days[1][-1].usage
        rows.append(
            {
                "prompt_tokens": usage["input_tokens"] + usage["cache_read_input_tokens"],
                "read_tokens": usage["input_tokens"],
                "first_use_ms": statistics.median(answer.first_ms for answer in days[0]),
                "next_day_ms": statistics.median(answer.first_ms for answer in days[1]),
            }
        )
    return rows


def _prompt(tokens: int) -> dict[str, Any]:
    """Return a coding client's prompt: rules, folder and date, then tools, which are most of it."""
    system = f"You are an agent.\n\n{words(tokens // 20)}\n\nFolder: /home/ann/shop\nDate: "
    return {"system": system, "tools": _tools(tokens * 8 // 10)}


def _on(prompt: dict[str, Any], day: str) -> dict[str, Any]:
    choice = {"type": "none"}
    messages = [user(f"Today is {day}. What is a list?")]
    return prompt | {"system": prompt["system"] + day, "messages": messages, "tool_choice": choice}


# ---- the whole ---------------------------------------------------------------------------------------


def measure(model: str | None, rounds: int, only: str | None, lengths: Sequence[int]) -> dict[str, Any]:
    settings = load_settings().having(model=model)
    path = ensure(settings, settings.model, Silent())
    found: dict[str, Any] = {
        "model": settings.model,
        "cpu": f"{platform.machine()} {' '.join(cpu_features())}",
        "threads": choose_threads(settings.threads),
        "load": os.getloadavg()[0],
    }
    with tempfile.TemporaryDirectory(prefix="vivace-clients-") as name:
        own = settings.having(
            cache_dir=Path(name) / "cache",
            state_dir=Path(name) / "state",
            model=str(path),
            port=0,
            context_tokens=CONTEXT_TOKENS,
            tune="never",
        )
        if only in (None, "side"):
            with running(own) as address:
                found["side"] = side(Client(address, own.model), rounds)
        if only in (None, "doors"):
            script = Path(name) / "script.json"
            said = {"replies": {"": "Hello there."}, "vocabulary": str(path), "context_tokens": 1 << 17}
            script.write_bytes(msgspec.json.encode(said))
            player = own.having(model=f"scripted:{script}", allow_scripted=True)
            with running(player) as address:
                found["doors"] = doors(Client(address, player.model), 3 * rounds)
        if only in (None, "restart"):
            found["restart"] = restart(own, max(1, rounds // 4), lengths)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--only", choices=["side", "doors", "restart"])
    parser.add_argument(
        "--tokens", type=int, nargs="*", default=RESTART_TOKENS, help="of the next day's prompt"
    )
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    result = measure(args.model, args.rounds, args.only, args.tokens)
    if args.json:
        print(json.dumps(result, indent=2))
        return
    print("{model}, {threads} threads, {cpu}, load {load:.1f}".format(**result))
    for part in ("side", "doors", "restart"):
        for row in result.get(part, []):
            print(part, *(f"{name} {_shown(value)}" for name, value in row.items()), sep="  ")


def _shown(value: Any) -> str:
    return f"{value:.2f}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    main()
