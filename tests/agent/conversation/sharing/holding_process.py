"""A process that holds a conversation, to be killed: it prints the id and then talks for long."""

import asyncio
import pickle
import sys
from pathlib import Path

from tests.agent.conversation.talking import Face
from vivace.agent.conversation.sharing.opening import open_or_attach


async def main() -> None:
    settings, folder = pickle.loads(bytes.fromhex(sys.argv[1]))
    talk = await open_or_attach(settings, Face(), Path(folder), name="victim")
    await talk.send("What is this?")
    talk.queue.add("And then?")
    print(talk.id, flush=True)
    await talk.send("Tell me something long")


if __name__ == "__main__":
    asyncio.run(main())
