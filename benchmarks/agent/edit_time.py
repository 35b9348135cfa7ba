"""How long an edit takes to the first token of its diff, where the user named neither file nor function.

    .venv/bin/python benchmarks/agent/edit_time.py [--model NAME] [--set NAME] [--kv FOLDER]

The repository is made of modules of this Python's own standard library. For each set a server is started
whose KV on disk has our own prompts, as after an earlier session, and nothing of these files. The first edit
is cold: the model is loaded, nothing of the file is read. The second, in the same file, is warm. Nothing is
written, and each edit ends at its first token. To compare two checkouts run it in turns with
`PYTHONPATH=CHECKOUT/src`. Printed of each prompt: new tokens of all that it has. `--kv` keeps the KV of our
own prompts for further runs.
"""

import argparse
import asyncio
import importlib.util
import shutil
import tempfile
import time
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vivace.agent.conversation.transcript.history import History, Turn
from vivace.agent.conversation.turns.editing import edit_in_turn
from vivace.agent.edits.apply.journal import Journal
from vivace.agent.edits.conflict import Conflict, Resolution
from vivace.agent.edits.places.index import FileIndex, index_file
from vivace.agent.edits.proposal import Decision, Proposal
from vivace.agent.events.edit import DiffGrew, UnitLocated
from vivace.agent.events.every import AgentEvent
from vivace.agent.model import Model
from vivace.agent.prompting import Message, read_prompt, user
from vivace.client.responses import ResponsesClient
from vivace.client.warm import ensure_server, stop_server
from vivace.config import Settings, load_settings
from vivace.errors import VivaceError

MODULES = ("textwrap", "configparser", "calendar", "shlex", "fnmatch", "csv", "string", "difflib", "getopt")
PROMPTS = ("rewrite", "locate", "choose_file", "intent")
SETS = {
    "named": (
        "shorten should raise a ValueError when the width is negative",
        "make indent accept a number of blanks as its prefix",
    ),
    "method": (
        "has_section should ignore upper and lower case",
        "add_section must refuse a name that is empty",
    ),
    "described": (
        "the names of the months should be upper case when a month is formatted as text",
        "when a week is formatted as text, its days should be separated by two blanks",
    ),
}


class NamingModel(Model):
    """The model, and by which prompt each turn that scored was asked."""

    def __init__(self, client: ResponsesClient, name: str) -> None:
        super().__init__(client, name)
        self.asked: list[str] = []

    async def score(self, messages: list[Message], candidates: list[str]) -> list[float]:
        self.asked += [
            name for name in PROMPTS if tuple(messages[: len(read_prompt(name))]) == read_prompt(name)
        ]
        return await super().score(messages, candidates)

    def write(self, messages: list[Message], **options: Any) -> AsyncGenerator[str]:
        self.asked.append("rewrite")
        return super().write(messages, **(options | {"max_tokens": 1}))


@dataclass
class Watching:
    """A face that looks when the first token comes."""

    unit: str = ""
    first_s: float = 0.0

    def show(self, event: AgentEvent) -> None:
        if isinstance(event, UnitLocated) and not self.unit:
            self.unit = f"{event.source.path.name}:{event.unit.qualified_name}"
        if isinstance(event, DiffGrew):
            self.first_s = self.first_s or time.perf_counter()

    async def decide(self, proposal: Proposal) -> Decision:
        raise NotImplementedError

    async def resolve(self, conflict: Conflict) -> Resolution:
        raise NotImplementedError


def make_folder(folder: Path) -> Path:
    folder.mkdir()
    for name in MODULES:
        spec = importlib.util.find_spec(name)
        assert spec
        assert spec.origin
        shutil.copy(spec.origin, folder / f"{name}.py")
    return folder


async def read_prompts(settings: Settings) -> None:
    """Let a server read our own prompts, and end it: their KV is on disk."""
    async with ResponsesClient(ensure_server(settings)) as client:
        model = Model(client, settings.model)
        for name in PROMPTS:
            for word in ("a", "b"):  # what two prompts share is kept
                await model.prefill([*read_prompt(name), user(word)])


async def first_token(model: NamingModel, settings: Settings, folder: Path, text: str) -> str:
    """Do an edit up to its first token. Return its figures as a line."""
    history = History(folder=str(folder), model=settings.model)
    history.turns.append(Turn(1, text, kind="edit"))
    watching, before = Watching(), len(model.waterfalls)
    model.asked = []
    index = FileIndex(folder, index_file(settings.cache_dir, folder))
    began_s = time.perf_counter()
    try:
        await edit_in_turn(
            history,
            model,
            watching,
            Journal(settings.state_dir / "undo"),
            text=text,
            mentions=(),
            approval="never",
            effort="low",
            index=index,
        )
    except VivaceError as error:  # the answer was cut
        watching.unit = watching.unit or error.message
    read = [
        f"{name} {each.new_tokens} of {each.new_tokens + each.cached_tokens}"
        for name, each in zip(model.asked, model.waterfalls[before:], strict=True)
    ]
    ended_s = watching.first_s or time.perf_counter()  # the user was asked
    return f"{ended_s - began_s:7.1f} s  {', '.join(read):<48}{watching.unit}"


async def measure_set(settings: Settings, folder: Path, name: str) -> None:
    async with ResponsesClient(ensure_server(settings)) as client:
        model = NamingModel(client, settings.model)
        await model.prefill([user("Wake up.")])
        for what, text in zip(("cold", "warm"), SETS[name], strict=True):
            print(f"{name:<10}{what:<6}{await first_token(model, settings, folder, text)}", flush=True)


def measure(model: str | None, names: list[str], kept: Path | None) -> None:
    settings = load_settings().having(model=model)
    with tempfile.TemporaryDirectory() as made:
        folder = make_folder(Path(made, "code"))
        base = kept or Path(made, "base")
        for name in (*(() if base.exists() else ("read",)), *names):
            cache = Path(made, f"cache-{name}")
            cache.mkdir()
            (cache / "models").symlink_to(settings.models_dir)
            if (settings.cache_dir / "build").is_dir():
                (cache / "build").symlink_to(settings.cache_dir / "build")
            own = settings.having(cache_dir=cache, state_dir=Path(made, f"state-{name}"))
            try:
                if name == "read":
                    asyncio.run(read_prompts(own))
                else:
                    shutil.copytree(base, own.kv_dir)
                    asyncio.run(measure_set(own, folder, name))
            finally:
                stop_server(own)
            if name == "read":
                shutil.copytree(own.kv_dir, base)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model")
    parser.add_argument("--set", choices=SETS, action="append")
    parser.add_argument(
        "--kv", type=Path, metavar="FOLDER", help="Of our own prompts: made if it is not there."
    )
    args = parser.parse_args()
    measure(args.model, args.set or list(SETS), args.kv)


if __name__ == "__main__":
    main()
