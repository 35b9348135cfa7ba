"""Every screen as axe-core sees it, which finds what assistive programs stumble over."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.e2e import npm
from tests.web.browser.conftest import watch
from tests.web.browser.screens import SCREENS, SIZES, answers, talk
from tests.web.browser.scripted_host import ScriptedHost

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

FAULTS = """() => axe.run(document, { resultTypes: ["violations"] }).then(({ violations }) =>
  violations.map(({ id, nodes }) => `${id}: ${nodes.map((node) => node.html.slice(0, 200)).join(" ")}`))"""


@pytest.fixture(scope="module")
def axe() -> str:
    return (npm.packages("axe", "axe-core@4.11.0") / "axe-core" / "axe.min.js").read_text()


@pytest.fixture(scope="module")
def kept_host() -> Iterator[ScriptedHost]:
    with ScriptedHost() as scripted:
        yield scripted


@pytest.fixture(scope="module")
def kept(chromium: "Browser") -> Iterator["Page"]:
    """A page for all screens: the app is loaded anew for each, but not read and compiled anew."""
    context = chromium.new_context()
    yield context.new_page()
    context.close()


@pytest.fixture(scope="module")
def problems(kept: "Page") -> list[str]:
    return watch(kept)


@pytest.fixture
def host(kept_host: ScriptedHost) -> ScriptedHost:
    """The host, with nothing that another screen left."""
    kept_host.requests.clear()
    kept_host.answers, kept_host.records, kept_host.seq = answers(), talk(), 0
    return kept_host


@pytest.fixture
def page(kept: "Page", problems: list[str]) -> Iterator["Page"]:
    """The page, with nothing in its storage that another screen left; nothing may go wrong on it."""
    yield kept
    kept.evaluate("localStorage.clear(), sessionStorage.clear()")
    kept.goto("about:blank")
    assert not problems


@pytest.mark.parametrize("width", [360, 1024])
@pytest.mark.parametrize("name", SCREENS)
def test_no_fault_is_found(page: "Page", host: ScriptedHost, axe: str, name: str, width: int) -> None:
    """Roles, names, landmarks, headings and contrast, on a phone and on a small desktop."""
    page.set_viewport_size({"width": width, "height": SIZES[width]})
    page.goto(host.url)
    page.wait_for_selector(".turn")
    page.wait_for_selector(".head select option[value=medium]", state="attached")
    SCREENS[name](page, host)
    page.evaluate(axe)
    assert page.evaluate(FAULTS) == []
