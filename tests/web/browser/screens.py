"""Every screen of the app at three widths, dark and light, to be looked at.

    python -m tests.web.browser.screens FOLDER [NAME …]

Owns what the screens show. Asserts nothing.
"""

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.web.browser.chromium import ARGUMENTS, EXECUTABLE
from tests.web.browser.scripted_host import FOLDER, ScriptedHost, file_answers, state

if TYPE_CHECKING:
    from playwright.sync_api import Page

Json = dict[str, Any]
SIZES = {360: 740, 1024: 768, 1920: 1080}
APP = '''import json
from pathlib import Path


def load(path: Path) -> list[dict]:
    """Return the entries of a log."""
    entries = []
    for line in path.read_text().splitlines():
        if line.strip():
            entries.append(json.loads(line))
    return entries


def summary(entries: list[dict]) -> str:
    return f"{len(entries)} entries"
'''
DIFF = """--- a/app.py
+++ b/app.py
@@ -7,7 +7,7 @@
     entries = []
     for line in path.read_text().splitlines():
-        if line.strip():
+        if line.strip() and not line.startswith("#"):
             entries.append(json.loads(line))
     return entries
"""
ANSWER = """`load` reads the file **line by line** and parses each one as JSON:

1. empty lines are passed over;
2. everything else must be valid, or `json.loads` raises.

```python
entries = load(Path("today.jsonl"))
print(summary(entries))  # 42 entries
```

> A log that is being written may end in half a line.

| function | what it returns |
|---|---|
| `load` | a list of entries |
| `summary` | one line of text |
"""
TIMES = {
    "name": "answer",
    "queue_ms": 2,
    "tokenize_ms": 1,
    "prefill_ms": 96,
    "decode_ms": 1800,
    "server_ms": 12,
    "output_tokens": 121,
    "cached_tokens": 1460,
    "new_tokens": 38,
}


def talk() -> list[Json]:
    path = f"{FOLDER}/app.py"
    return [
        {"type": "turn.started", "turn": 1, "text": "What does load in @app.py do with empty lines?"},
        {"type": "turn.file", "path": path, "by": "mention"},
        {"type": "attempt.started"},
        {"type": "answer.delta", "text": ANSWER},
        {"type": "turn.times", "model": "m", "first_token_ms": 99.0, "turns": [TIMES]},
        {"type": "turn.ended", "turn": 1, "status": "completed", "total_tokens": 1620},
        {"type": "turn.started", "turn": 2, "text": "Let it pass over comments too"},
        {"type": "edit.located", "path": path, "unit": "load", "lines": "5-11"},
        {"type": "edit.proposed", "path": path, "unit": "load", "diff": DIFF},
        {"type": "edit.applied", "path": path, "diff": DIFF, "entry": 4},
        {"type": "turn.ended", "turn": 2, "status": "completed", "total_tokens": 2210},
    ]


def hunk(number: int) -> Json:
    rows = [
        [" ", "def summary(entries: list[dict]) -> str:"],
        ["-", '    return f"{len(entries)} entries"'],
        ["+", '    kinds = {entry["kind"] for entry in entries}'],
        ["+", '    return f"{len(entries)} entries of {len(kinds)} kinds"'],
    ]
    return {"hunk": number, "old_first": 14, "old_count": 2, "new_first": 14, "new_count": 3, "rows": rows}


def question() -> Json:
    new = APP.replace(
        '    return f"{len(entries)} entries"',
        '    kinds = {entry["kind"] for entry in entries}\n'
        '    return f"{len(entries)} entries of {len(kinds)} kinds"',
    )
    file = {
        "path": f"{FOLDER}/app.py",
        "unit": "summary",
        "old_text": APP,
        "new_text": new,
        "hunks": [hunk(0)],
    }
    return {"type": "question", "question": "q1", "kind": "edit", "files": [file]}


def rows() -> list[Json]:
    titles = [
        "What does load in @app.py do with empty lines?",
        "Rename every method of Store to snake case and mend all callers in tests",
        "Why is the parser slow?",
        "release notes",
    ]
    return [
        {
            "conversation": "talk1" if n == 0 else f"talk{n + 1}",
            "title": title,
            "folder": FOLDER,
            "model": "m",
            "started_at_s": 0,
            "used_at_s": time.time() - 4000 * n**2,
            "turns": 2 + n,
            "is_running": n == 1,
        }
        for n, title in enumerate(titles)
    ]


def tasks() -> Json:
    known = {"folder": FOLDER, "model": "qwen2.5-coder-1.5b", "tokens": 18400, "seconds": 214.0, "text": ""}
    asked = {"tool": "shell", "title": "pip install orjson", "reason": "It needs the network."}
    first = {
        "task": "t1",
        "instruction": "Speed up the parser, measure before and after",
        "status": "waiting",
    }
    second = {
        "task": "t2",
        "instruction": "Write tests for store.py",
        "status": "done",
        "text": "9 tests, all pass.",
    }
    return {
        "tasks": [
            {**known, **first, "last": "asks: pip install orjson", "turns": 12, "asked": asked},
            {**known, **second, "last": "completed", "turns": 31},
        ]
    }


def metrics() -> Json:
    now = time.time()
    samples = [
        {
            "at_s": now - 3600 + 60 * n,
            "tokens_per_s": 40 + 12 * (n % 7),
            "first_token_ms": 90 + 15 * (n % 5),
            "cached_share": 0.5 + 0.4 * ((n % 9) / 9),
            "turns": 1,
        }
        for n in range(60)
    ]
    return {"samples": samples, "every_s": 60}


def log() -> Json:
    lines = [
        {"type": "task.started", "task": "Speed up the parser"},
        {"type": "tool.started", "title": "read src/parser.py"},
        {"type": "tool.ended", "status": "done", "summary": "212 lines"},
        {"type": "files.written", "paths": ["src/parser.py"]},
    ]
    return {"lines": lines, "next": len(lines)}


def answers() -> dict[str, Callable[[Json], Any]]:
    result = {
        "name": "bench",
        "at_s": time.time(),
        "result": {"runs": [{"name": "ours", "decode_tok_s": 61.2}]},
    }
    return {
        **file_answers({"app.py": APP, "README.md": "# Logs\n", "tests/test_app.py": "def test(): ...\n"}),
        "conversations.list": lambda _request: {"conversations": rows()},
        "tasks.list": lambda _request: tasks(),
        "tasks.log": lambda _request: log(),
        "tasks.diff": lambda _request: {"text": DIFF},
        "metrics.read": lambda _request: metrics(),
        "results.list": lambda _request: {"results": [result]},
        "conversation.context": lambda _request: {
            "parts": [
                {"name": "instructions", "tokens": 420, "text": "You are a coding companion."},
                {"name": "conversation", "tokens": 1790, "text": "What does load do?"},
            ],
            "used_tokens": 2210,
            "window_tokens": 32768,
        },
    }


def side(page: "Page", name: str) -> None:
    if page.viewport_size and page.viewport_size["width"] < 720:
        page.get_by_role("button", name="Show conversations and files").click()
    page.get_by_role("tab", name=name).click()


def show_asked(page: "Page", host: ScriptedHost) -> None:
    host.tell({"type": "turn.started", "turn": 3, "text": "Say how many kinds there are"}, question())
    page.locator(".question").wait_for()
    page.wait_for_timeout(600)


def show_list(page: "Page", _host: ScriptedHost) -> None:
    side(page, "Talks")
    page.locator(".row-item").nth(1).hover()


def show_deleting(page: "Page", host: ScriptedHost) -> None:
    show_list(page, host)
    page.locator(".row-item").nth(1).get_by_role("button", name="Delete").click()


def show_call(page: "Page", host: ScriptedHost) -> None:
    call = {
        "kind": "call",
        "tool": "shell",
        "title": "rm -r build",
        "reason": "It deletes files.",
        "can_be_kept": True,
    }
    host.tell(
        {"type": "turn.started", "turn": 3, "text": "Clean up"},
        {"type": "question", "question": "q2", **call},
    )
    page.locator(".question").wait_for()


def show_files(page: "Page", _host: ScriptedHost) -> None:
    side(page, "Files")
    page.wait_for_timeout(300)


def show_open_file(page: "Page", _host: ScriptedHost) -> None:
    page.keyboard.press("Control+p")
    page.get_by_label("Find a file").fill("app")
    page.locator(".finder [role=option]").first.click()
    if page.viewport_size and page.viewport_size["width"] < 1100:
        page.wait_for_timeout(300)
    page.wait_for_timeout(600)


def show_tasks(page: "Page", _host: ScriptedHost) -> None:
    side(page, "Tasks")
    page.locator(".row-item").first.click()
    page.wait_for_timeout(400)


def show_numbers(page: "Page", _host: ScriptedHost) -> None:
    side(page, "Numbers")
    page.wait_for_timeout(400)


def show_running(page: "Page", host: ScriptedHost) -> None:
    host.tell({"type": "turn.started", "turn": 3, "text": "And then?"}, {"type": "attempt.started"})
    host.tell({"type": "answer.delta", "text": "First of all, the parser"})
    host.tell({"type": "queue.changed", "messages": [{"id": 1, "text": "then write a test"}]})
    host.tell(state(faces=2))
    page.locator(".queue").wait_for()


def show_keys(page: "Page", _host: ScriptedHost) -> None:
    page.locator(".scroller").focus()
    page.keyboard.press("?")


def show_context(page: "Page", _host: ScriptedHost) -> None:
    page.locator(".meter").click()
    page.locator(".context table").wait_for()


SCREENS: dict[str, Callable[["Page", ScriptedHost], None]] = {
    "talk": lambda _page, _host: None,
    "asked": show_asked,
    "running": show_running,
    "call": show_call,
    "list": show_list,
    "deleting": show_deleting,
    "files": show_files,
    "file": show_open_file,
    "tasks": show_tasks,
    "numbers": show_numbers,
    "keys": show_keys,
    "context": show_context,
}


def main(folder: str, names: list[str]) -> None:
    from playwright.sync_api import sync_playwright

    Path(folder).mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=EXECUTABLE, args=ARGUMENTS)
        for width, height in SIZES.items():
            for theme in ("dark", "light"):
                for name in names or list(SCREENS):
                    with ScriptedHost() as host:
                        host.answers, host.records = answers(), talk()
                        page = browser.new_page(
                            viewport={"width": width, "height": height}, color_scheme=theme
                        )
                        page.goto(host.url)
                        page.wait_for_selector(".turn")
                        page.wait_for_timeout(300)
                        SCREENS[name](page, host)
                        page.screenshot(path=Path(folder, f"{name}-{width}-{theme}.png"))
                        page.close()
        browser.close()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
