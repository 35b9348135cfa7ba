"""Make docs/guides/vscode.png: an edit under review and a question in the side view, with the default model.

    .venv/bin/python -m docs.recording.vscode

Owns what is asked and said. The window is that of the tests: code-server, Chromium and the model's file must
be there. A server of its own is started and stopped. Let the machine do nothing else: the picture shows how
fast the model was.
"""

import shutil
import tempfile
from pathlib import Path

from tests import REPOSITORY
from tests.e2e.terminal import Home
from tests.editors import window as windows
from vivace.config import load_settings

PICTURE = REPOSITORY / "docs" / "guides" / "vscode.png"
PATIENCE_S = 300.0  # a model that computes


def main() -> None:
    windows.DEADLINE_S = PATIENCE_S
    extra = {
        "VIVACE_CACHE_DIR": str(load_settings().cache_dir),
        "VIVACE_THREADS": "0",
        "VIVACE_TUNE": "never",
    }
    with tempfile.TemporaryDirectory() as folder:
        home = Home(Path(folder), extra=extra)
        try:
            with windows.opened(home) as window:
                take(window)
        finally:
            home.stop()


def take(window: windows.Window) -> None:
    window.wait(lambda: "warm" in window.status, "the model is warm")
    file = window.home.work / "todo.py"
    shutil.copy(REPOSITORY / "examples" / "todo.py", file)
    window.ask_quickly("Control+P", str(file), file.name)
    window.wait(lambda: "class Task" in window.text, "the file is shown")
    window.command("View: Show Vivace")
    view = window.page.frame_locator("iframe.webview.ready").frame_locator("#active-frame")
    view.get_by_text(str(window.home.work)).first.wait_for()  # it is connected
    box = view.locator("#prompt")
    box.fill("What does `load` return when the file is missing? One sentence.")
    box.press("Enter")
    view.locator(".waterfall rect").first.wait_for(state="attached")
    window.go_to(13)
    window.edit("give every task a priority from 1 to 3, default 2")
    window.wait(lambda: window.lenses, "the edit is whole")
    window.page.wait_for_timeout(1000)  # the colours
    window.picture(PICTURE)


if __name__ == "__main__":
    main()
