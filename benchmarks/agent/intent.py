"""How often a message is taken for what it is, a question or an edit: by its words, and with the model.

    .venv/bin/python benchmarks/agent/intent.py [--model NAME]

The messages are those of the tests, labelled by hand; half of the lines below are about messages that were
written after the words were chosen. Scores come from the warm server, as in a conversation.
"""

import argparse
import asyncio
import sys
from pathlib import Path

from vivace.agent.conversation.connection import Connection
from vivace.agent.conversation.message.intent import decide_intent
from vivace.agent.events.turn import TurnKind
from vivace.agent.model import Model
from vivace.config import load_settings

sys.path.insert(0, str(Path(__file__).parents[2]))
from tests.agent.conversation.message import intents

Sets = list[tuple[str, list[tuple[TurnKind, list[str]]]]]
SETS: Sets = [
    ("seen", [("question", intents.QUESTIONS), ("edit", intents.EDITS)]),
    ("held out", [("question", intents.HELD_OUT_QUESTIONS), ("edit", intents.HELD_OUT_EDITS)]),
]


async def count(model: Model, name: str, labelled: list[tuple[TurnKind, list[str]]]) -> None:
    right = {"words": 0, "model": 0}
    total = {"words": 0, "model": 0}
    for kind, messages in labelled:
        for text in messages:
            decided = await decide_intent(model, text)
            total[decided.by] += 1
            right[decided.by] += decided.kind == kind
            if decided.kind != kind:
                print(f"  taken for {decided.kind} by {decided.by}: {text}")
    shown = ", ".join(f"{right[by]} of {total[by]} right by {by}" for by in right)
    print(f"{name}: {shown}")


async def run(model_name: str | None) -> None:
    settings = load_settings().having(model=model_name)
    connection = Connection(settings)
    model = await connection.model(settings.model)
    for name, labelled in SETS:
        await count(model, name, labelled)
    await connection.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model")
    asyncio.run(run(parser.parse_args().model))
