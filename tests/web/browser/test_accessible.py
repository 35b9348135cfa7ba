"""Every screen as axe-core sees it, which finds what assistive programs stumble over."""

from typing import TYPE_CHECKING

import pytest

from tests.e2e import npm
from tests.web.browser.screens import SCREENS, SIZES, answers, talk
from tests.web.browser.scripted_host import ScriptedHost

if TYPE_CHECKING:
    from playwright.sync_api import Page

FAULTS = """() => axe.run(document, { resultTypes: ["violations"] }).then(({ violations }) =>
  violations.map(({ id, nodes }) => `${id}: ${nodes.map((node) => node.html.slice(0, 200)).join(" ")}`))"""


@pytest.fixture(scope="module")
def axe() -> str:
    return (npm.packages("axe", "axe-core@4.11.0") / "axe-core" / "axe.min.js").read_text()


@pytest.mark.parametrize("width", [360, 1024])
@pytest.mark.parametrize("name", SCREENS)
def test_no_fault_is_found(page: "Page", host: ScriptedHost, axe: str, name: str, width: int) -> None:
    """Roles, names, landmarks, headings and contrast, on a phone and on a small desktop."""
    host.answers, host.records = answers(), talk()
    page.set_viewport_size({"width": width, "height": SIZES[width]})
    page.goto(host.url)
    page.wait_for_selector(".turn")
    page.wait_for_selector(".head select option[value=medium]", state="attached")
    SCREENS[name](page, host)
    page.evaluate(axe)
    assert page.evaluate(FAULTS) == []
