"""A Chromium for each module with tests of the browser app, a page for each test, and a host that plays."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.web.browser.chromium import ARGUMENTS, EXECUTABLE
from tests.web.browser.scripted_host import ScriptedHost

if TYPE_CHECKING:
    from playwright.sync_api import Browser, ConsoleMessage, Page

sync_api = pytest.importorskip(
    "playwright.sync_api", reason="Playwright is not installed: pip install playwright"
)


@pytest.fixture(scope="module")
def chromium() -> Iterator["Browser"]:
    """Debian's Chromium, or the one that VIVACE_TEST_CHROMIUM names.

    It ends with the module: Playwright's event loop counts as running until then, and asynchronous tests of
    the same worker could not begin one.
    """
    if not EXECUTABLE:
        pytest.skip("Chromium is not installed: apt-get install chromium")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=EXECUTABLE, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture
def page(chromium: "Browser") -> Iterator["Page"]:
    """A page that fails the test if the console has an error, a script fails or the policy is broken."""
    context = chromium.new_context(viewport={"width": 1280, "height": 800})
    page = context.new_page()
    problems = watch(page)
    yield page
    context.close()
    assert not problems


def watch(page: "Page") -> list[str]:
    """Return a list that all will be in that goes wrong on the page."""
    page.set_default_timeout(20_000)
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(f"{error.message}\n{error.stack}"))
    page.on(
        "console", lambda said: problems.append(f"{said.text} {said.location}") if is_problem(said) else None
    )
    return problems


def is_problem(said: "ConsoleMessage") -> bool:
    """Return whether the console says more than that a server was gone, which tests do on purpose."""
    gone = ("WebSocket connection", "ERR_CONNECTION_REFUSED")
    return said.type in ("error", "warning") and not any(each in said.text for each in gone)


@pytest.fixture
def host() -> Iterator[ScriptedHost]:
    with ScriptedHost() as scripted:
        yield scripted


@pytest.fixture
def opened(page: "Page", host: ScriptedHost) -> "Page":
    """The app, connected to the scripted host."""
    page.goto(host.url)
    page.wait_for_selector(".connection.connected")
    page.wait_for_selector(".head select option[value=medium]", state="attached")
    return page
