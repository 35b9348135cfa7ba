"""A launch before it happens: command, variables and files, as values.

Owns how a client's texts are filled, and how a launch is shown. Starts nothing and writes nothing.
"""

import json
import os
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from string import Template

from vivace.cli.launch.clients import Client, Prompt
from vivace.cli.launch.place import Place
from vivace.config import Settings
from vivace.protocol.rundir import HOST

NO_PROXY = ("NO_PROXY", "no_proxy")  # a proxy of the user's is not to be asked for our server


@dataclass(frozen=True)
class LaunchRequest:
    """Which client is to run, with which model, and what it is to tell the model."""

    settings: Settings
    client: Client
    program: str
    place: Place
    prompt: Prompt
    given: tuple[str, ...]  # the user's own arguments

    @property
    def words(self) -> str:
        """Say it in one line."""
        name = f"{self.prompt.name} prompt: " if len(self.client.prompts) > 1 else ""
        told = f"{name}{self.prompt.tokens:,} tokens before your first word"
        return f"{self.client.title} over {self.client.transport}, {self.settings.model} ({told})"


@dataclass(frozen=True)
class Launch:
    command: list[str]
    variables: dict[str, str]
    removed: tuple[str, ...]
    files: dict[Path, str]

    def environment(self, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
        """Return the client's environment: ours, changed. Nothing else of it is taken away."""
        kept = {name: value for name, value in environ.items() if name not in self.removed}
        hosts = {name: ",".join(filter(None, (kept.get(name), HOST))) for name in NO_PROXY}
        return kept | hosts | self.variables

    def lines(self) -> Iterator[str]:
        """Show all of it, for people."""
        for name, value in self.variables.items():
            yield f"{name}={shlex.quote(value)}"
        for name in self.removed:
            yield f"unset {name}"
        for path, text in self.files.items():
            yield f"# {path}"
            yield from (f"#   {line}" for line in text.splitlines())
        yield shlex.join(self.command)


def planned(asked: LaunchRequest, port: int, key: str, folder: Path) -> Launch:
    """Return the launch of a client at the server on this port, with the user's arguments behind ours."""
    root = f"http://{HOST}:{port}"
    plain = {
        "root": root,
        "url": f"{root}/v1",
        "key": key,
        "model": asked.settings.model,
        "small": asked.settings.model_of("background"),
        "folder": str(folder),
        "window": str(asked.place.window_tokens),
        "output": str(asked.place.output_tokens),
    }
    escaped = {name: json.dumps(value)[1:-1] for name, value in plain.items()}

    def fill(text: str) -> str:
        """Texts with double quotes are JSON, TOML or YAML, where such a text is escaped alike."""
        return Template(text).substitute(escaped if '"' in text else plain)

    client = asked.client
    return Launch(
        command=[asked.program, *map(fill, (*client.arguments, *asked.prompt.arguments)), *asked.given],
        variables={name: fill(value) for name, value in client.variables.items()},
        removed=client.removed,
        files={folder / name: fill(text) for name, text in client.files.items()},
    )
