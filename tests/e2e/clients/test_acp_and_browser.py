"""One conversation in an editor that speaks ACP and in the browser app, live in both."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from acp import text_block

from tests.acp.editor import FakeEditorClient
from tests.e2e.clients.acp_program import started
from tests.e2e.conftest import NEW, SHOUTED, TASK
from tests.e2e.terminal import DEADLINE_S, Home
from tests.server.serving import LONG
from tests.web.browser.chromium import ARGUMENTS, EXECUTABLE
from vivace.cli.talk.browsing import entrance
from vivace.client import warm
from vivace.config import Settings

if TYPE_CHECKING:
    from playwright.async_api import Page

async_api = pytest.importorskip(
    "playwright.async_api", reason="Playwright is not installed: pip install playwright"
)


@pytest.fixture
def working(home: Home) -> Home:
    (home.work / "task.py").write_text(TASK)
    replies = {
        "You locate code": "`show`",
        "Task: ": SHOUTED,
        "in French": "Bonjour.",
        "What is long": LONG,
        "Why": "Because.",
        "": "Hello there.",
    }
    home.script(replies, step_ms=10)
    return home


@pytest.fixture
async def app(working: Home) -> AsyncIterator["Page"]:
    """The app as `vivace web` opens it."""
    if not EXECUTABLE:
        pytest.skip("Chromium is not installed: apt-get install chromium")
    settings = Settings(
        cache_dir=working.folder / "cache",
        state_dir=working.folder / "state",
        port=0,
        model=working.model,
        allow_scripted=True,
        threads=1,
    )
    address = await asyncio.to_thread(warm.ensure_server, settings)
    async with async_api.async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=EXECUTABLE, args=ARGUMENTS)
        page = await browser.new_page(viewport={"width": 1280, "height": 800})
        await page.goto(entrance(address, working.work))
        await page.wait_for_selector(".connection.connected")
        await page.wait_for_selector(".head select option[value=medium]", state="attached")
        yield page
        await browser.close()


async def say(page: "Page", text: str) -> None:
    await page.locator("#prompt").fill(text)
    await page.keyboard.press("Enter")


async def test_the_page_joins_an_editors_session(working: Home, app: "Page") -> None:
    """It is in the list, with what was said; an answer is steered and an edit is decided from the page."""
    client = FakeEditorClient()
    client.never_answers = True
    async with asyncio.timeout(DEADLINE_S), started(working, client) as (agent, _):
        session = (await agent.new_session(cwd=str(working.work), mcp_servers=[])).session_id

        async def prompt(text: str) -> str:
            return (await agent.prompt(session_id=session, prompt=[text_block(text)])).stop_reason

        assert await prompt("Hi, what is it?") == "end_turn"
        await app.locator(".row-item", has_text="Hi, what is it?").click()
        await app.locator(".turn", has_text="Hello there.").wait_for()
        running = asyncio.create_task(prompt("What is long?"))
        await app.locator(".turn", has_text="3 bottles").wait_for()
        await say(app, "in French")
        assert await running == "end_turn"
        assert client.said.endswith("Bonjour.")
        running = asyncio.create_task(prompt("make @task.py:show shout"))
        await client.until(lambda: bool(client.asked))
        await app.locator(".question").wait_for()
        await app.keyboard.press("Control+Enter")
        assert await running == "end_turn"
        assert text_of(working.work / "task.py") == NEW


async def test_an_editor_joins_the_pages_conversation(working: Home, app: "Page") -> None:
    """The editor lists it and loads what was said; what either of both says next, both have."""
    await say(app, "Hi, what is it?")
    await app.locator(".turn", has_text="Hello there.").wait_for()
    await app.locator(".stop").wait_for(state="detached")
    client = FakeEditorClient()
    async with asyncio.timeout(DEADLINE_S), started(working, client) as (agent, _):
        (listed,) = (await agent.list_sessions(cwd=str(working.work))).sessions
        assert listed.title == "Hi, what is it?"
        session = listed.session_id
        await agent.load_session(cwd=str(working.work), session_id=session, mcp_servers=[])
        assert client.said == "Hello there."
        answer = await agent.prompt(session_id=session, prompt=[text_block("Why is that?")])
        assert answer.stop_reason == "end_turn"
        await app.locator(".turn", has_text="Why is that?").get_by_text("Because.").wait_for()
        await say(app, "What else, in French?")
        await client.until(lambda: client.said.endswith("Bonjour."))


def text_of(file: Path) -> str:
    return file.read_text()
