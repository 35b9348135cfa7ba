"""Prompts and their answers: text, stop reasons, cancelling, steering, commands, errors."""

import asyncio
from pathlib import Path

import pytest
from acp import RequestError, image_block

from tests.acp.conftest import Open
from tests.server.serving import LONG


async def test_a_prompt_is_answered_as_text_that_comes(open_wire: Open) -> None:
    """The whole text is there before the prompt ends, with the tokens that are used."""
    wire = await open_wire()
    assert await wire.prompt("Hi") == "end_turn"
    assert wire.client.said == "Hello there."
    assert wire.client.kinds()[0] == "available_commands_update"
    assert wire.client.kinds()[-1] == "usage_update"


async def test_an_agent_says_what_it_can_do(open_wire: Open) -> None:
    """Sessions can be loaded, listed, resumed and closed, files embedded, and turns steered."""
    wire = await open_wire(begins=False)
    answer = await wire.agent.initialize(protocol_version=7)
    assert answer.protocol_version == 1
    can = answer.agent_capabilities
    assert can is not None
    assert can.session_capabilities is not None
    assert can.prompt_capabilities is not None
    assert (can.load_session, can.prompt_capabilities.embedded_context) == (True, True)
    sessions = can.session_capabilities
    assert None not in (sessions.list, sessions.resume, sessions.close, sessions.fork, sessions.delete)
    assert answer.field_meta == {"steering": {"supported": True}}


async def test_cancel_ends_the_prompt_and_keeps_the_partial(open_wire: Open) -> None:
    """The prompt ends as cancelled; the next one goes on from what was said, without reading it again."""
    wire = await open_wire({"What then?": "Then this.", "long": LONG, "": "Hi."}, step_ms=5)
    running = asyncio.create_task(wire.prompt("What is long?"))
    await wire.client.until(lambda: len(wire.client.said) > 20)
    await wire.agent.cancel(session_id=wire.session)
    assert await running == "cancelled"
    assert LONG.startswith(wire.client.said)
    assert await wire.prompt("What then?") == "end_turn"
    assert wire.client.said.endswith("Then this.")
    assert wire.client.kinds().count("available_commands_update") == 1


async def test_a_request_is_taken_back(open_wire: Open) -> None:
    """`$/cancel_request` ends a prompt as `session/cancel` does; one that is over is passed over."""
    wire = await open_wire(step_ms=5)
    running = asyncio.create_task(wire.prompt("What is long?"))
    await wire.client.until(lambda: len(wire.client.said) > 20)
    await wire.take_back("session/prompt")
    assert await running == "cancelled"
    for request in ("no such", 10**9, None, [1]):
        await wire.send_raw(method="$/cancel_request", params={"requestId": request})
    await wire.send_raw(method="$/cancel_request")
    assert await wire.prompt("What then?") == "end_turn"


async def test_a_request_is_taken_back_at_once(open_wire: Open) -> None:
    """Both messages in one go: the prompt has not begun, and is cancelled all the same."""
    wire = await open_wire(step_ms=5)
    prompt = {"sessionId": wire.session, "prompt": [{"type": "text", "text": "What is long?"}]}
    await wire.send_raw(id="p1", method="session/prompt", params=prompt)
    await wire.send_raw(method="$/cancel_request", params={"requestId": "p1"})
    assert (await wire.answer_to("p1"))["result"] == {"stopReason": "cancelled"}
    assert not wire.client.said


async def test_a_session_that_is_being_opened_is_taken_back(open_wire: Open, folder: Path) -> None:
    """The answer is the protocol's own error, and the session can be opened later."""
    wire = await open_wire()
    await wire.prompt("Hi")
    await wire.agent.close_session(session_id=wire.session)
    load = {"sessionId": wire.session, "cwd": str(folder), "mcpServers": []}
    await wire.send_raw(id="l1", method="session/load", params=load)
    await wire.send_raw(method="$/cancel_request", params={"requestId": "l1"})
    assert (await wire.answer_to("l1"))["error"]["code"] == -32800
    await wire.agent.load_session(cwd=str(folder), session_id=wire.session, mcp_servers=[])
    assert await wire.prompt("What then?") == "end_turn"


async def test_a_prompt_that_waits_for_a_cancelled_one_can_be_cancelled(open_wire: Open) -> None:
    """It never begins."""
    wire = await open_wire(step_ms=5)
    running = asyncio.create_task(wire.prompt("What is long?"))
    await wire.client.until(lambda: len(wire.client.said) > 20)
    await wire.agent.cancel(session_id=wire.session)
    waiting = asyncio.create_task(wire.prompt("What then?"))
    await asyncio.sleep(0)
    await wire.agent.cancel(session_id=wire.session)
    assert await running == await waiting == "cancelled"
    assert "Hello" not in wire.client.said


async def test_a_prompt_directly_behind_a_cancel_waits_for_it(open_wire: Open) -> None:
    """A client that does not wait for the end of the cancelled prompt is served all the same."""
    wire = await open_wire(step_ms=5)
    running = asyncio.create_task(wire.prompt("What is long?"))
    await wire.client.until(lambda: len(wire.client.said) > 20)
    await wire.agent.cancel(session_id=wire.session)
    assert await wire.prompt("What then?") == "end_turn"
    assert await running == "cancelled"


async def test_a_second_prompt_is_refused_while_one_runs(open_wire: Open) -> None:
    """With words that say what to do instead."""
    wire = await open_wire(step_ms=5)
    running = asyncio.create_task(wire.prompt("What is long?"))
    await wire.client.until(lambda: bool(wire.client.said))
    with pytest.raises(RequestError, match="runs already"):
        await wire.prompt("Hi")
    await wire.agent.cancel(session_id=wire.session)
    await running


async def test_a_steer_turns_the_answer_around(open_wire: Open) -> None:
    """The running prompt goes on with what was said; without one, a prompt is asked for."""
    wire = await open_wire({"other way": "Turned.", "long": LONG, "": "Hi."}, step_ms=5)

    async def steer() -> str:
        block = {"type": "text", "text": "The other way, please: other way"}
        params = {"sessionId": wire.session, "prompt": [block]}
        return str((await wire.agent.ext_method("session/steering", params))["outcome"])

    assert await steer() == "promptRequired"
    running = asyncio.create_task(wire.prompt("What is long?"))
    await wire.client.until(lambda: len(wire.client.said) > 20)
    assert await steer() == "injected"
    assert await running == "end_turn"
    assert wire.client.said.endswith("Turned.")


async def test_a_cut_answer_says_so(open_wire: Open) -> None:
    """An answer that reached its limit ends with max_tokens."""
    wire = await open_wire({"": "word " * 3000}, context_tokens=60000)
    assert await wire.prompt("Hi") == "max_tokens"


async def test_errors_come_with_words_and_a_hint(open_wire: Open) -> None:
    """What is wrong with a request is said, in the shape of JSON-RPC; the session goes on."""
    wire = await open_wire()
    with pytest.raises(RequestError) as raised:
        await wire.prompt("", image_block("aGk=", "image/png"))
    assert (raised.value.code, raised.value.data["hint"]) == (
        -32602,
        "Send text, links to files, or files as text.",
    )
    with pytest.raises(RequestError, match="empty"):
        await wire.prompt(" ")
    with pytest.raises(RequestError, match="is no folder"):
        await wire.agent.new_session(cwd="relative", mcp_servers=[])
    with pytest.raises(RequestError, match="not open"):
        await wire.agent.prompt(session_id="20260101-000000-abcdef", prompt=[])
    with pytest.raises(RequestError, match="Method not found"):
        await wire.agent.ext_method("session/fly", {})
    assert await wire.prompt("Hi") == "end_turn"


async def test_commands_are_run_and_not_sent(open_wire: Open) -> None:
    """A known command answers by itself; a text that only looks like one is a message."""
    wire = await open_wire()
    await wire.prompt("Hi")
    wire.client.updates.clear()
    assert await wire.prompt("/status") == "end_turn"
    assert wire.session in wire.client.said
    wire.client.updates.clear()
    assert await wire.prompt("/context") == "end_turn"
    assert "message 1" in wire.client.said
    with pytest.raises(RequestError, match="no edit of this conversation to undo"):
        await wire.prompt("/undo")
    wire.client.updates.clear()
    assert await wire.prompt("/etc/hosts is what?") == "end_turn"
    assert wire.client.said == "Hello there."


async def test_a_mistyped_file_is_an_error(open_wire: Open, folder: Path) -> None:
    """Nothing is sent, and the client shows the nearest names."""
    (folder / "task.py").write_text("x = 1\n")
    wire = await open_wire()
    with pytest.raises(RequestError) as refused:
        await wire.prompt("shorten @tsak.py")
    assert "There is no file tsak.py" in str(refused.value)
    assert await wire.prompt("what is `@tsak.py`?") == "end_turn"
