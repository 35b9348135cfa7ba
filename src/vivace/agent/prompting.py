"""Prompts are files: `prompts/NAME.md`, with a heading for each message's role.

Owns reading them. Does not own what is filled in around them.
"""

import re
from functools import cache
from importlib.resources import files

Message = dict[str, str]  # role, content, and status "in_progress" for an answer that is to be continued

_HEADING = re.compile(r"^# (system|user|assistant)\n", re.MULTILINE)


@cache
def read_prompt(name: str) -> tuple[Message, ...]:
    text = (files("vivace.agent") / "prompts" / f"{name}.md").read_text("utf-8")
    _, *parts = _HEADING.split(text)
    pairs = zip(parts[::2], parts[1::2], strict=True)
    return tuple({"role": role, "content": content.strip("\n")} for role, content in pairs)


def user(content: str) -> Message:
    return {"role": "user", "content": content}


def begun_answer(content: str) -> Message:
    """Return a message with the beginning of the model's answer, which it continues."""
    return {"role": "assistant", "content": content, "status": "in_progress"}
