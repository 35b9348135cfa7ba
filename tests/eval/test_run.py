"""Cases against a real server with a scripted model: what is obeyed, kept and prefilled again is counted."""

import asyncio
import json
from pathlib import Path

import pytest
from websockets.asyncio.client import connect
from websockets.asyncio.server import ServerConnection
from websockets.asyncio.server import serve as serve_sockets

from tests.server.serving import script
from vivace.client.warm import ServerAddress
from vivace.errors import RequestRefused
from vivace.eval.steers.cases import Case, Form, Steer
from vivace.eval.steers.checks import Check
from vivace.eval.steers.report import summary, table
from vivace.eval.steers.run import run_case, run_steers

STORY = "Once upon a time there was a city. " * 10


def case_of(name: str, *steers: str, form: Form = "steer") -> Case:
    return Case(
        name=name,
        kind="add",
        ask="Tell a story.",
        steers=tuple(Steer(5, text) for text in steers),
        obeyed=(Check(words=("dog",)),),
        kept=(Check(words=("city",)),),
        form=form,
    )


@pytest.fixture
def model(tmp_path: Path) -> str:
    replies = {"a dog": "A dog in a city.", "a cat": "A dog.", "": STORY}
    return script(tmp_path, replies=replies, step_ms=5)


@pytest.mark.parametrize("form", ["steer", "interrupt", "resend"])
async def test_an_obedient_model_obeys_in_every_form(address: ServerAddress, model: str, form: Form) -> None:
    """The last answer is checked, the interrupted one does not pass, and nothing is prefilled again."""
    (result,) = await run_steers(address, model, [case_of("dog", "with a dog", form=form)])
    assert (result.obeyed, result.kept, result.passed_before) == (True, True, False)
    assert result.prefilled_again == 0


@pytest.mark.parametrize("form", ["steer", "interrupt", "resend"])
async def test_an_answer_that_ends_early_is_followed_by_the_text(
    address: ServerAddress, tmp_path: Path, form: Form
) -> None:
    """An answer with fewer deltas than the case waits for is not waited for: the text is the next message."""
    model = script(tmp_path, replies={"a dog": "A dog in a city.", "": "No."}, step_ms=1)
    async with asyncio.timeout(60):
        (result,) = await run_steers(address, model, [case_of("dog", "with a dog", form=form)])
    assert result.obeyed


async def test_what_is_not_obeyed_or_lost_is_counted_so(address: ServerAddress, model: str) -> None:
    """The report has every case once, by kind, form and set, and names those that failed."""
    cases = [case_of("dog", "with a dog"), case_of("lost", "a cat"), case_of("deaf", "louder", "with tea")]
    told: list[str] = []
    results = await run_steers(address, model, cases, told.append)
    report = summary("a-model", results)
    assert report["obeyed"] == {"cases": 3, "obeyed": 2, "to_keep": 3, "kept": 2}
    assert report["kinds"]["add"] == report["forms"]["steer"] == report["sets"]["tuned"] == report["obeyed"]
    assert len(told) == 3
    shown = table(report)
    assert "Not obeyed: deaf." in shown
    assert "Task lost: lost." in shown
    assert "Tokens prefilled again: 0." in shown


async def test_a_model_that_is_not_there_is_refused(address: ServerAddress) -> None:
    """The server's own sentence is what the user sees."""
    with pytest.raises(RequestRefused):
        await run_steers(address, "no-such-model", [case_of("dog", "with a dog")])


async def test_a_steer_that_an_answer_ended_just_behind_is_waited_for() -> None:
    """The answer ends by itself after the steer was accepted: what follows is the steered answer."""

    def response(name: str, text: str, reason: str) -> dict[str, object]:
        output = [{"type": "message", "content": [{"type": "output_text", "text": text}]}]
        usage = {"total_tokens": 9, "input_tokens_details": {"cached_tokens": 8}}
        details = {"reason": reason} if reason else None
        return {"id": name, "output": output, "usage": usage, "incomplete_details": details}

    async def serve(socket: ServerConnection) -> None:
        async def say(kind: str, **fields: object) -> None:
            await socket.send(json.dumps({"type": kind, **fields}))

        await socket.recv()
        await say("response.created", response={"id": "r1"})
        await say("response.output_text.delta", delta="blue")
        assert json.loads(await socket.recv())["type"] == "response.steer"
        await say("response.steer.accepted")
        await say("response.incomplete", response=response("r1", "blue", "max_output_tokens"))
        await say("response.created", response={"id": "r2"})
        await say("response.completed", response=response("r2", "red", ""))
        await socket.wait_closed()

    case = Case("late", "word", "Name a colour.", (Steer(1, "Say red."),), (Check(words=("red",)),))
    async with (
        serve_sockets(serve, "127.0.0.1", 0) as server,
        connect(f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}", proxy=None) as socket,
        asyncio.timeout(10),
    ):
        result = await run_case(socket, "any", case)
    assert result.obeyed
    assert not result.passed_before
