"""Puts the fixed beginnings of the agent's prompts into the KV, and so onto the disk, before anybody asks.

    python -m vivace.cli.warmup edit FILE "INSTRUCTION"    starts the server for that command and its model
    python -m vivace.cli.warmup                            uses the server that runs, if one does

Run by the set-up while it does the rest, and by the server after its engine has taken up other weights. Owns
which prompts, and how they come to be kept. A failure here costs a prefill later, nothing else.
"""

import asyncio
import sys

from vivace.agent.model import Model
from vivace.agent.prompting import read_prompt, user
from vivace.client.responses import ResponsesClient
from vivace.client.warm import ensure_server, find_server
from vivace.config import load_settings
from vivace.errors import VivaceError
from vivace.models.prefetch import model_of
from vivace.models.store import is_present

PROMPTS = (
    "locate",
    "rewrite",
    "ask",
    "intent",
    "choose_file",
    "part",
)  # in the order in which a first edit needs them
CONTINUATIONS = ("a", "b")  # the engine keeps on disk what two prompts begin with and then leave


async def warm_prompts(model: Model) -> None:
    for name in PROMPTS:
        for word in CONTINUATIONS:
            await model.prefill([*read_prompt(name), user(word)])


async def _warm(command: list[str]) -> None:
    settings = load_settings()
    settings = settings.having(model=model_of(settings, command) or None)
    if not is_present(settings, settings.model) or (not command and not find_server(settings)):
        return
    async with ResponsesClient(ensure_server(settings)) as client:
        await warm_prompts(Model(client, settings.model))


def main() -> int:
    try:
        asyncio.run(_warm(sys.argv[1:]))
    except VivaceError as error:
        print(error.message, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
