"""Make docs/browser.png: a question and an edit in the browser app, with the default model.

    .venv/bin/python docs/recording/browser.py

Owns the example, and what is said. Needs Playwright, Chromium and the model's file; a server of its own is
started and stopped.
"""

import shutil
import tempfile
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

from vivace.cli.talk.browsing import entrance
from vivace.client import warm
from vivace.config import load_settings

PICTURE = Path(__file__).resolve().parent.parent / "browser.png"
PATIENCE_MS = 300_000  # a model that computes, on a machine that does other things too
READER = '''"""Reading of log files."""

from dataclasses import dataclass
from datetime import datetime


@dataclass
class Entry:
    time: datetime
    level: str
    text: str


def parse_line(line):
    parts = line.split(" ", 2)
    time = datetime.fromisoformat(parts[0])
    return Entry(time, parts[1], parts[2])


def parse_file(path):
    entries = []
    for line in open(path):
        entries.append(parse_line(line))
    return entries


def count_levels(entries):
    counts = {}
    for entry in entries:
        counts[entry.level] = counts.get(entry.level, 0) + 1
    return counts
'''


def main() -> None:
    with tempfile.TemporaryDirectory() as home:
        folder = Path(home, "logs")
        folder.mkdir()
        (folder / "reader.py").write_text(READER)
        settings = load_settings().having(state_dir=Path(home, "state"), port=0, tune="never")
        try:
            address = warm.ensure_server(settings)
            take(entrance(address, folder))
        finally:
            warm.stop_server(settings)


def take(url: str) -> None:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1440, "height": 860}, color_scheme="dark")
        page.set_default_timeout(PATIENCE_MS)
        page.goto(url)
        page.wait_for_selector(".head select option[value=medium]", state="attached")
        say(page, "What does parse_line in @reader.py do? One or two sentences.")
        page.locator(".waterfall rect").first.wait_for(state="attached")
        page.locator(".stop").wait_for(state="detached")
        say(page, "Use a with statement and a list comprehension in parse_file of @reader.py")
        page.locator(".question").wait_for()
        page.locator(".cm-chunkButtons").first.wait_for()
        page.wait_for_timeout(1000)  # the list beside, and the colours
        page.screenshot(path=PICTURE)
        browser.close()


def say(page: Page, text: str) -> None:
    page.locator("#prompt").fill(text)
    page.keyboard.press("Enter")


if __name__ == "__main__":
    main()
