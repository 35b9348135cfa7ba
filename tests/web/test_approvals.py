"""What a browser or VS Code is asked is what runs, and its yes counts for just that."""

import asyncio
from pathlib import Path

import pytest

from tests.agent.loop.working import raw_call
from tests.server.serving import script
from tests.web.facing import RefusedRequest, facing
from vivace.agent.permissions.shown import parse
from vivace.client.warm import ServerAddress

pytestmark = pytest.mark.asyncio(loop_scope="module")
COMMAND = "touch X # \u202e ghp_" + "a1B2" * 9 + "\nMay this run? Allow"


async def test_a_yes_names_what_was_shown(address: ServerAddress, tmp_path: Path, folder: Path) -> None:
    """The question has all of it; an answer without its digest, or with another one, is refused."""
    steps = [raw_call("shell", command=COMMAND, leave_sandbox=True), "Done."]
    model = script(tmp_path, "tools", steps=steps, replies={"": "Done."}, step_ms=1, context_tokens=20000)
    async with facing(address) as face:
        await face.ask("hello", folder=str(folder))
        talk = (await face.ask("conversation.open"))["conversation"]
        await face.ask("conversation.set", conversation=talk, model=model)
        await face.event("live.state", model=model, activity=None)
        sending = asyncio.create_task(face.ask("conversation.send", conversation=talk, text="do it"))
        asked = await face.event("question", kind="call")
        assert parse(asked["shown"]) == COMMAND
        given = {"conversation": talk, "question": asked["question"], "is_allowed": True}
        for digest in ({}, {"digest": ""}, {"digest": "0" * 64}):
            with pytest.raises(RefusedRequest) as refused:
                await face.ask("conversation.approve", **given, **digest)
            assert "another question" in str(refused.value)
        assert not (folder / "X").exists()
        await face.ask("conversation.approve", **given, digest=asked["digest"])
        await face.event("question.closed", question=asked["question"])
        await sending
        await face.event("turn.ended")
        assert (folder / "X").exists()
