"""A real VS Code for tests: code-server with our extension in it, looked at through Chromium.

Owns starting and ending both, and what a person does with keys and sees on the screen. A window is used by
all tests of a module, each with files of its own.
"""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.terminal import Home
from tools import code_server
from vivace.client import http
from vivace.editors.vsix import build_vsix

playwright = pytest.importorskip(
    "playwright.sync_api", reason="Playwright is not installed (pip install -c constraints.txt playwright)"
)
CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
DEADLINE_S = 60.0
SETTINGS = {
    "vivace.command": [sys.executable, "-m", "vivace"],
    "vivace.edit.largeLines": 40,
    "editor.minimap.enabled": False,
    "editor.fontFamily": "monospace",
    "editor.autoClosingBrackets": "never",
    "editor.acceptSuggestionOnEnter": "off",
    "editor.quickSuggestions": {"other": "off", "comments": "off", "strings": "off"},
    "editor.suggestOnTriggerCharacters": False,
    "extensions.ignoreRecommendations": True,
    "files.autoSave": "off",
    "security.workspace.trust.enabled": False,
    "telemetry.telemetryLevel": "off",
    "update.mode": "none",
    "workbench.startupEditor": "none",
    "workbench.secondarySideBar.defaultVisibility": "hidden",
    "chat.disableAIFeatures": True,
}


def code_server_command() -> list[str]:
    """Return the command line; skip the test where it, or Chromium, is not installed."""
    line = code_server.command()
    if line is None:
        pytest.skip("code-server is not installed (python tools/code_server.py, 504 MB, some minutes)")
    return line


def chromium() -> str:
    found = next(filter(None, map(shutil.which, CHROMIUM)), None)
    if found is None:
        pytest.skip("Chromium is not on this machine (Debian: chromium)")
    return found


class Window:
    """The editor as a person has it in front of them."""

    def __init__(self, page: Any, home: Home) -> None:
        self.page = page
        self.home = home

    # ---- what a person does

    def open(self, name: str, text: str) -> Path:
        """Make a file and open it in front of others. Return its path."""
        file = self.home.work / name
        file.write_text(text)
        self.ask_quickly("Control+P", str(file), name)
        self.page.locator(f'.tab[data-resource-name="{name}"]').wait_for()
        self.wait(lambda: self.text.rstrip() == text.rstrip(), f"{name} is shown")
        return file

    def command(self, title: str) -> None:
        """Run a command by its title."""
        self.ask_quickly("F1", f">{title}", title)

    def ask_quickly(self, keys: str, words: str, row: str) -> None:
        """Open the box at the top with keys, type words, and take the row with this text."""
        box = self.page.locator(".quick-input-widget input[type=text]").first
        self.press(keys)
        box.wait_for()
        box.fill(words)
        self.page.locator(".quick-input-list .monaco-list-row", has_text=row).first.wait_for()
        self.press("Enter")
        box.wait_for(state="hidden")

    def edit(self, instruction: str) -> None:
        """Press Ctrl+I in the editor and say what to do."""
        self.focus()
        self.press("Control+I")
        box = self.page.locator(".quick-input-widget", has_text="Vivace").locator("input")
        box.wait_for()
        box.fill(instruction)
        self.press("Enter")

    def go_to(self, line: int, column: int = 1) -> None:
        box = self.page.locator(".quick-input-widget input[type=text]").first
        self.press("Control+G")
        box.wait_for()
        box.fill(f":{line}:{column}")
        self.press("Enter")
        box.wait_for(state="hidden")
        self.focus()

    def focus(self) -> None:
        """Make sure that keys go to the editor, without moving its cursor."""
        self.page.locator(".editor-instance .inputarea, .editor-instance .native-edit-context").first.focus()

    def press(self, keys: str) -> None:
        self.page.keyboard.press(keys)

    def type(self, text: str, delay_ms: float = 20) -> None:
        self.page.keyboard.type(text, delay=delay_ms)

    def click_lens(self, title: str, index: int = 0) -> None:
        """Click the lens of that name, counted from the top of the file."""
        lenses = self.page.locator(".codelens-decoration a", has_text=re.compile(title))
        self.wait(lambda: lenses.count() > index, f"lens {title}")
        boxes = [(lens.bounding_box() or {"y": 0})["y"] for lens in lenses.all()]
        order = sorted(range(len(boxes)), key=boxes.__getitem__)
        lenses.nth(order[index]).click()

    def save(self) -> None:
        self.press("Control+S")
        self.wait(lambda: not self.is_dirty, "the file is saved")

    # ---- what a person sees

    @property
    def text(self) -> str:
        """Return the lines of the editor that are on the screen."""
        script = """() => [...document.querySelectorAll('.editor-instance .view-line')]
            .map(line => [parseFloat(line.style.top), line.textContent])
            .sort((a, b) => a[0] - b[0]).map(each => each[1]).join('\\n')"""
        return str(self.page.evaluate(script)).replace("\xa0", " ").replace("\u200c", "")

    @property
    def ghost(self) -> str:
        """Return the suggestion that is shown."""
        parts = self.page.locator(
            ".ghost-text, .ghost-text-decoration, .suggest-preview-text"
        ).all_inner_texts()
        return "".join(parts).replace("\xa0", " ")

    @property
    def status(self) -> str:
        """Return our part of the status bar."""
        item = self.page.locator('[id="vivace.vivace.vivace.status"], [id$="vivace.status"]').first
        return item.inner_text() if item.count() else ""

    @property
    def messages(self) -> str:
        return " ".join(self.page.locator(".notification-list-item-message").all_inner_texts())

    @property
    def lenses(self) -> list[str]:
        return [
            text.replace("\xa0", " ")
            for text in self.page.locator(".codelens-decoration a").all_inner_texts()
        ]

    @property
    def is_dirty(self) -> bool:
        return self.page.locator(".tab.active.dirty").count() > 0

    def wait(self, condition: Callable[[], object], what: str) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not condition():
            assert time.monotonic() < deadline, (
                f"waited in vain: {what}\n{self.text}\n{self.messages}\n{self.status}"
            )
            self.page.wait_for_timeout(30)

    def wait_for_text(self, text: str) -> None:
        self.wait(lambda: self.text.rstrip() == text.rstrip(), f"the text is {text!r}")

    @contextmanager
    def another(self) -> Iterator["Window"]:
        """Open a second window on the same folder; close it in the end."""
        page = self.page.context.browser.new_page(viewport=self.page.viewport_size)
        try:
            page.set_default_timeout(DEADLINE_S * 1e3)
            page.goto(self.page.url)
            other = Window(page, self.home)
            other.begin()
            yield other
        finally:
            page.close()

    def begin(self) -> None:
        """Wait until the extension is there."""
        self.page.locator(".monaco-workbench").wait_for()
        self.wait(lambda: self.status, "the extension is active")

    def close_editors(self) -> None:
        """Take all changes, save, and leave one empty group."""
        self.command("File: Save All")
        self.wait(lambda: not self.page.locator(".tab.dirty").count(), "all is saved")
        self.command("View: Close All Editors")
        self.page.locator(".tab").first.wait_for(state="hidden")

    def picture(self, file: Path) -> None:
        self.page.screenshot(path=str(file))


@contextmanager
def opened(home: Home, size: tuple[int, int] = (1200, 800)) -> Iterator[Window]:
    """Start code-server with the extension, and a browser in front of it; end both."""
    code, browser = code_server_command(), chromium()
    folder = home.folder / "code"
    settings = folder / "user" / "User" / "settings.json"
    settings.parent.mkdir(parents=True)
    settings.write_text(json.dumps(SETTINGS))
    port = _free_port()
    config = folder / "config.yaml"
    config.write_text(f"auth: none\nbind-addr: 127.0.0.1:{port}\n")
    places = ("--user-data-dir", str(folder / "user"), "--extensions-dir", str(folder / "extensions"))
    line = [*code, "--config", str(config), *places]
    env = home.env() | {"HOME": str(home.folder)}
    file = build_vsix(folder / "vivace.vsix", SETTINGS["vivace.command"])  # type: ignore[arg-type]
    subprocess.run([*line, "--install-extension", str(file)], env=env, check=True, capture_output=True)
    quiet = ("--disable-telemetry", "--disable-update-check", "--disable-workspace-trust")
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen([*line, *quiet], env=env, stdout=log, stderr=log, start_new_session=True)
    try:
        _wait_for(port, server)
        with playwright.sync_playwright() as started:
            chrome = started.chromium.launch(executable_path=browser, args=["--no-sandbox"])
            page = chrome.new_page(viewport={"width": size[0], "height": size[1]})
            page.set_default_timeout(DEADLINE_S * 1e3)
            page.goto(f"http://127.0.0.1:{port}/?folder={home.work}")
            window = Window(page, home)
            window.begin()
            yield window
            chrome.close()
    finally:
        os.killpg(server.pid, 15)
        server.wait(30)


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def _wait_for(port: int, server: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        assert server.poll() is None, "code-server ended"
        try:
            if http.get(port, "/healthz")[0] == 200:
                return
        except OSError:
            time.sleep(0.1)
    raise AssertionError("code-server does not answer")
