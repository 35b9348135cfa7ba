"""The terminal face with a real server and a scripted model."""

import hashlib
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.agent.loop.working import call
from tests.server.conftest import served
from tests.server.serving import script
from tests.tui.screen import Screen
from vivace.config import Settings
from vivace.tui.app import VivaceApp

__all__ = ["served"]

_WORDS = [
    hashlib.sha256(str(number).encode()).hexdigest()[:9] for number in range(60)
]  # no draft guesses them
LONG = "".join(f"{number} bottles {word}\n" for number, word in enumerate(_WORDS))
REPLIES = {
    "snippet": "Look:\n```python\ndef f():\n    return 1\n```\nDone.",
    "long": LONG,
    "": "Hello there.",
}

EDIT = call("edit", path="a.py", old_text="x = 1", new_text="x = 2")
Open = Callable[..., AbstractAsyncContextManager[Screen]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "repository"
    folder.mkdir()
    return folder


@pytest.fixture
def file(folder: Path) -> Path:
    """A file that the call `EDIT` changes."""
    file = folder / "a.py"
    file.write_text("x = 1\n")
    return file


def read(file: Path) -> str:
    return file.read_text()


@pytest.fixture
def open_screen(served: Settings, tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Open:
    """Open the face. Its model gives these replies, a letter each `step_ms`."""
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    monkeypatch.delenv("NO_COLOR", raising=False)

    @asynccontextmanager
    async def open_it(
        replies: dict[str, str] | None = None,
        *,
        size: tuple[int, int] = (80, 24),
        resume: str | None = None,
        step_ms: float = 1,
        no_model: bool = False,
        family: str = "chatml",
        steps: Sequence[str] = (),
        loads: dict[str, Any] | None = None,  # how its model is loaded
        **changes: object,
    ) -> AsyncIterator[Screen]:
        said = replies or REPLIES
        model = script(
            tmp_path,
            replies=said,
            step_ms=step_ms,
            context_tokens=20000,
            family=family,
            steps=list(steps),  # with them it is a model that can call tools
            **(loads or {}),
        )
        settings = served.having(model="smollm2-135m" if no_model else model, **changes)
        app = VivaceApp(settings, folder, resume=resume)
        async with app.run_test(size=size):
            try:
                yield Screen(app)
            finally:
                if app.session is not None:
                    await app.session.close()

    return open_it
