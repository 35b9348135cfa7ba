"""What tests of races share: the model's answers, a server's settings, and a mistake of ours."""

from pathlib import Path

from tests.server.serving import script
from vivace.config import Settings

CALL = 'Let me look. <tool_call>\n{"name": "look", "arguments": {"at": "' + "x" * 400 + '"}}</tool_call>'
LOOK = {"type": "function", "name": "look", "parameters": {"type": "object"}, "strict": False}


def settings_in(folder: Path, **changes: object) -> Settings:
    replies = {"brief": "Fine.", "call": CALL, "": "x" * 3000}
    model = script(folder, replies=replies, step_ms=1)
    return Settings(
        cache_dir=folder / "cache", state_dir=folder, port=0, threads=1, model=model, allow_scripted=True
    ).having(**changes)


def explode() -> None:
    raise ZeroDivisionError
