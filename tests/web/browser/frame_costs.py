"""What a stream costs the page, task by task, in processor time: it means the same on a busy machine.

    python -m tests.web.browser.frame_costs [prose|code|diff …]

Plays 10,000 tokens a second into the app for 3 seconds with tracing on. Prints the longest task of the
page's thread, and what the first and the last third cost. Owns the reading of a trace.
"""

import json
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.web.browser.chromium import ARGUMENTS, EXECUTABLE
from tests.web.browser.scripted_host import FOLDER, ScriptedHost, file_answers

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

Json = dict[str, Any]
SECONDS, RATE, CHARS, EVERY_S = 3.0, 10_000, 4, 0.01  # of the stream: 400 characters every 10 ms
CATEGORIES = ["disabled-by-default-devtools.timeline", "devtools.timeline", "blink.user_timing"]
PARTS = (
    "FunctionCall",
    "FireAnimationFrame",
    "UpdateLayoutTree",
    "Layout",
    "PrePaint",
    "Paint",
    "MinorGC",
    "MajorGC",
)
UNIT = [f"    value_{n} = compute({n}, 'some text', other={n % 7})  # and why\n" for n in range(3000)]


@dataclass(frozen=True)
class Costs:
    """Processor time of the tasks of the page's thread, in ms, in their order."""

    tasks_ms: list[float]
    parts_ms: dict[str, float]

    @property
    def longest_ms(self) -> float:
        return max(self.tasks_ms, default=0.0)

    @property
    def thirds_ms(self) -> tuple[float, float]:
        """Return what the first and the last third of the stream cost."""
        third = len(self.tasks_ms) // 3
        return sum(self.tasks_ms[:third]), sum(self.tasks_ms[-third:])

    def __str__(self) -> str:
        first, last = self.thirds_ms
        parts = ", ".join(
            f"{name} {ms:.0f}" for name, ms in sorted(self.parts_ms.items(), key=lambda each: -each[1])
        )
        long = sum(ms > 50 for ms in self.tasks_ms)
        longest = f"longest task {self.longest_ms:.0f} ms, {long} over 50 ms"
        return f"{longest}; thirds {first:.0f} and {last:.0f} ms ({parts})"


def costs_of(trace: bytes) -> Costs:
    """Return what the page's main thread did between the marks `stream` and `streamed`."""
    events = [each for each in json.loads(trace)["traceEvents"] if each.get("ts")]
    begin = next(each for each in events if each["name"] == "stream")
    end = next(each for each in events if each["name"] == "streamed")
    ours = sorted(
        (
            each
            for each in events
            if (each["pid"], each["tid"]) == (begin["pid"], begin["tid"])
            and each["ph"] == "X"
            and begin["ts"] <= each["ts"] <= end["ts"]
        ),
        key=lambda each: each["ts"],
    )
    parts: dict[str, float] = defaultdict(float)
    for each in ours:
        if each["name"] in PARTS:
            parts[each["name"]] += each.get("tdur", 0) / 1000
    return Costs([each.get("tdur", 0) / 1000 for each in ours if each["name"] == "RunTask"], dict(parts))


def measure(browser: "Browser", page: "Page", host: ScriptedHost, kind: str) -> Costs:
    """Play one kind of stream into the opened app and return what it cost."""
    host.tell({"type": "turn.started", "turn": 1, "text": "go"}, {"type": "attempt.started"})
    prelude, events = STREAMS[kind]()
    for event in prelude:
        host.tell(event)
    page.wait_for_timeout(500)
    browser.start_tracing(page=page, categories=CATEGORIES)
    page.evaluate("() => performance.mark('stream')")
    host.play((n * EVERY_S, event) for n, event in enumerate(events))
    host.tell({"type": "turn.ended", "turn": 1, "status": "completed"})
    page.locator(".stop").wait_for(state="detached")
    page.wait_for_timeout(500)  # what is done when the stream is over counts too
    page.evaluate("() => performance.mark('streamed')")
    return costs_of(browser.stop_tracing())


def pieces(text: str) -> Iterator[str]:
    size = int(RATE * CHARS * EVERY_S)
    for at in range(0, min(len(text), int(SECONDS * RATE * CHARS)), size):
        yield text[at : at + size]


def prose() -> tuple[list[Json], list[Json]]:
    text = ("Some **words** about `it`, and more of them. " * 8 + "\n\n- one\n- two\n\n") * 400
    return [], [{"type": "answer.delta", "text": piece} for piece in pieces(text)]


def code() -> tuple[list[Json], list[Json]]:
    text = "```python\n" + "".join(UNIT)
    return [], [
        *({"type": "answer.delta", "text": piece} for piece in pieces(text)),
        {"type": "answer.delta", "text": "\n```\n\nDone.\n"},
    ]


def diff() -> tuple[list[Json], list[Json]]:
    old = [line.replace("compute", "count") if n % 10 == 0 else line for n, line in enumerate(UNIT)]
    OPEN["app.py"] = "".join(
        ["import os\n\n\n", "def main():\n", *old, "\n\n", "def other():\n    pass\n" * 300]
    )
    place = {
        "type": "live.diff",
        "path": f"{FOLDER}/app.py",
        "unit": "main",
        "first_line": 4,
        "last_line": 4 + len(UNIT),
    }
    located = {"type": "edit.located", "path": place["path"], "unit": "main", "lines": f"4-{4 + len(UNIT)}"}
    opening = {**place, "delta": "def main():\n", "is_first": True}
    return [located, opening], [{**place, "delta": piece} for piece in pieces("".join(UNIT))]


OPEN: dict[str, str] = {}
STREAMS = {"prose": prose, "code": code, "diff": diff}


def main(kinds: list[str]) -> None:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=EXECUTABLE, args=ARGUMENTS)
        for kind in kinds or list(STREAMS):
            with ScriptedHost() as host:
                host.answers = file_answers(OPEN)
                page = browser.new_page(viewport={"width": 1280, "height": 800})
                page.goto(host.url)
                page.wait_for_selector(".head select option[value=medium]", state="attached")
                print(f"{kind}: {measure(browser, page, host, kind)}", flush=True)
                page.close()
        browser.close()


if __name__ == "__main__":
    main(sys.argv[1:])
