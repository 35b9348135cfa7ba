"""Sessions: begun, listed, loaded with all that was shown, resumed, closed; and what they can be set to."""

import asyncio
from pathlib import Path

import pytest
from acp import RequestError
from acp.schema import ToolCallStart

from tests.acp.conftest import Open
from tests.agent.conversation.talking import EDITING, Face
from tests.agent.edits.test_flow import NEW, OLD
from vivace.agent.conversation.sharing.opening import open_or_attach
from vivace.agent.permissions.modes import mode_named
from vivace.config import Settings


async def test_a_session_is_loaded_with_all_that_was_shown(open_wire: Open, folder: Path) -> None:
    """Another client sees the messages, the answers and the edits, and can go on."""
    (folder / "task.py").write_text(OLD)
    wire = await open_wire(EDITING)
    await wire.prompt("make @task.py:show shout")
    await wire.prompt("What did you do?")
    await wire.agent.close_session(session_id=wire.session)
    other = await open_wire(EDITING, begins=False)
    await other.agent.load_session(cwd=str(folder), session_id=wire.session, mcp_servers=[])
    said = [each for each in other.client.updates if each.session_update == "user_message_chunk"]
    assert [each.content.text for each in said] == ["make @task.py:show shout", "What did you do?"]
    assert other.client.said == "I know it was accepted."
    (edit,) = [each for each in other.client.updates if isinstance(each, ToolCallStart)]
    assert (edit.status, edit.title) == ("completed", "Edit task.py: show (applied)")
    assert edit.content is not None
    assert edit.content[0].new_text.startswith("def show(task):\n    print(task.title.upper())")
    other.session = wire.session
    assert await other.prompt("What did you do?") == "end_turn"


async def test_a_session_is_resumed_without_a_word(open_wire: Open, folder: Path) -> None:
    """Nothing is shown again; the conversation goes on."""
    wire = await open_wire()
    await wire.prompt("Hi")
    await wire.agent.close_session(session_id=wire.session)
    other = await open_wire(begins=False)
    await other.agent.resume_session(cwd=str(folder), session_id=wire.session, mcp_servers=[])
    assert not other.client.said
    other.session = wire.session
    assert await other.prompt("Hi") == "end_turn"


async def test_sessions_are_listed_by_folder(open_wire: Open, folder: Path, tmp_path: Path) -> None:
    """The last one first, with the first message as its title; those of another folder are not there."""
    wire = await open_wire()
    await wire.prompt("What is it?")
    first = wire.session
    wire.session = (await wire.agent.new_session(cwd=str(folder), mcp_servers=[])).session_id
    await wire.prompt("What again?")
    listed = (await wire.agent.list_sessions(cwd=str(folder))).sessions
    assert [(each.session_id, each.title) for each in listed] == [
        (wire.session, "What again?"),
        (first, "What is it?"),
    ]
    assert all(each.updated_at for each in listed)
    assert not (await wire.agent.list_sessions(cwd=str(tmp_path))).sessions


async def test_what_cannot_be_loaded_is_refused(open_wire: Open, folder: Path, tmp_path: Path) -> None:
    """With words: open here already, of another folder, no such conversation."""
    wire = await open_wire()
    await wire.prompt("Hi")
    with pytest.raises(RequestError, match="open already"):
        await wire.agent.load_session(cwd=str(folder), session_id=wire.session, mcp_servers=[])
    await wire.agent.close_session(session_id=wire.session)
    other = await open_wire(begins=False)
    with pytest.raises(RequestError, match="is about"):
        await other.agent.load_session(cwd=str(tmp_path), session_id=wire.session, mcp_servers=[])
    for name in ("20260101-000000-abcdef", "../../secret"):
        with pytest.raises(RequestError, match="no conversation"):
            await other.agent.load_session(cwd=str(folder), session_id=name, mcp_servers=[])


async def test_a_session_that_is_open_elsewhere_is_joined(open_wire: Open, folder: Path) -> None:
    """Another client sees what was said, then each new message with its answer, and can prompt itself."""
    wire = await open_wire()
    await wire.prompt("What is it?")
    other = await open_wire(begins=False)
    await other.agent.load_session(cwd=str(folder), session_id=wire.session, mcp_servers=[])
    other.session = wire.session
    assert other.client.said == "Hello there."
    await wire.prompt("What else?")
    await other.client.until(lambda: other.client.said == "Hello there." * 2)
    said = [each for each in other.client.updates if each.session_update == "user_message_chunk"]
    assert [each.content.text for each in said] == ["What is it?", "What else?"]
    assert await other.prompt("And this?") == "end_turn"
    await wire.client.until(lambda: wire.client.said == "Hello there." * 3)


async def test_a_fork_goes_on_alone(open_wire: Open, folder: Path) -> None:
    """It knows what was said, open or closed; what is said in it the other does not have."""
    wire = await open_wire()
    await wire.prompt("What is it?")
    first = wire.session
    wire.session = (await wire.agent.fork_session(cwd=str(folder), session_id=first)).session_id
    assert wire.session != first
    await wire.prompt("What else?")
    for session in (first, wire.session):
        await wire.agent.close_session(session_id=session)
    wire.session = (await wire.agent.fork_session(cwd=str(folder), session_id=wire.session)).session_id
    await wire.prompt("And then?")
    listed = (await wire.agent.list_sessions(cwd=str(folder))).sessions
    assert len(listed) == 3
    other = await open_wire(begins=False)
    for session, turns in [(first, 1), (wire.session, 3)]:
        other.client.updates.clear()
        await other.agent.load_session(cwd=str(folder), session_id=session, mcp_servers=[])
        assert other.client.kinds().count("user_message_chunk") == turns


async def test_a_fork_that_cannot_be_leaves_nothing(open_wire: Open, folder: Path, tmp_path: Path) -> None:
    """Of no conversation, or from another folder; one in which nothing was said gives a new session."""
    wire = await open_wire()
    assert (
        await wire.agent.fork_session(cwd=str(folder), session_id=wire.session)
    ).session_id != wire.session
    await wire.prompt("What is it?")
    with pytest.raises(RequestError, match="is about"):
        await wire.agent.fork_session(cwd=str(tmp_path), session_id=wire.session)
    with pytest.raises(RequestError, match="no conversation"):
        await wire.agent.fork_session(cwd=str(folder), session_id="20260101-000000-abcdef")
    assert len((await wire.agent.list_sessions(cwd=str(folder))).sessions) == 1


async def test_a_session_is_deleted(open_wire: Open, folder: Path) -> None:
    """Open here or not, it is in no list any more; one that another client has open is left."""
    wire = await open_wire()

    async def delete(number: int, session: str) -> dict[str, object]:
        await wire.send_raw(id=f"d{number}", method="session/delete", params={"sessionId": session})
        return await wire.answer_to(f"d{number}")

    assert (await delete(1, wire.session))["result"] == {}
    wire.session = (await wire.agent.new_session(cwd=str(folder), mcp_servers=[])).session_id
    await wire.prompt("What is it?")
    other = await open_wire()
    await other.prompt("What is that?")
    assert "is open" in str((await delete(2, other.session))["error"])
    assert (await delete(3, wire.session))["result"] == {}
    listed = (await wire.agent.list_sessions(cwd=str(folder))).sessions
    assert [each.session_id for each in listed] == [other.session]
    assert "no conversation" in str((await delete(4, wire.session))["error"])


async def test_a_session_has_a_title(open_wire: Open, folder: Path) -> None:
    """Its first message, until it is renamed."""
    wire = await open_wire()
    await wire.prompt("What is\nit?")
    await wire.prompt("And this?")
    await wire.prompt("/rename Its name")
    told = [each for each in wire.client.updates if each.session_update == "session_info_update"]
    assert [each.title for each in told] == ["What is it?", "Its name"]
    (listed,) = (await wire.agent.list_sessions(cwd=str(folder))).sessions
    assert listed.title == "Its name"


async def test_a_terminal_joins_a_session_while_it_asks(
    open_wire: Open, served: Settings, folder: Path
) -> None:
    """It sees the turn that runs and decides; the editor's question is taken back, and its options follow."""
    (folder / "task.py").write_text(OLD)
    wire = await open_wire(EDITING)
    wire.client.never_answers = True
    running = asyncio.create_task(wire.prompt("make @task.py:show shout"))
    await wire.client.until(lambda: bool(wire.client.asked))
    terminal = Face()
    async with await open_or_attach(served, terminal, wire.session, name="terminal") as talk:
        assert not talk.is_held
        talk.follow()
        assert await running == "end_turn"
        assert (folder / "task.py").read_text() == NEW
        (asked,) = [each for each in wire.raw if each.get("method") == "session/request_permission"]
        (taken_back,) = [each for each in wire.raw if each.get("method") == "$/cancel_request"]
        assert taken_back["params"] == {"requestId": asked["id"]}
        talk.policy = mode_named("read-only").policy
        await wire.client.until(lambda: "current_mode_update" in wire.client.kinds())
        assert wire.client.updates[-1].config_options[0].current_value == "read-only"


async def test_mode_model_and_effort_can_be_set(open_wire: Open, folder: Path) -> None:
    """As a mode or as an option; a change is told, and a value that there is not is refused."""
    wire = await open_wire(begins=False)
    begun = await wire.agent.new_session(cwd=str(folder), mcp_servers=[])
    wire.session = begun.session_id
    assert begun.modes is not None
    assert begun.modes.current_mode_id == "workspace"
    assert begun.config_options is not None
    assert [each.category for each in begun.config_options] == ["mode", "model", "thought_level"]
    await wire.agent.set_session_mode(session_id=wire.session, mode_id="read-only")
    await wire.client.until(lambda: "config_option_update" in wire.client.kinds())
    assert "current_mode_update" in wire.client.kinds()
    answer = await wire.agent.set_config_option(session_id=wire.session, config_id="effort", value="high")
    assert answer is not None
    assert [each.current_value for each in answer.config_options][::2] == ["read-only", "high"]
    for option, value in [("effort", "huge"), ("mode", "none"), ("model", "gpt-99"), ("colour", "red")]:
        with pytest.raises(RequestError, match=r"There is no|not here"):
            await wire.agent.set_config_option(session_id=wire.session, config_id=option, value=value)
    assert await wire.prompt("Hi") == "end_turn"
