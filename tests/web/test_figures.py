"""Figures and background tasks, as a face sees them; and `vivace web`, which lets a browser in."""

import asyncio
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from click.testing import CliRunner

from tests.web.facing import facing
from vivace.cli.main import app
from vivace.cli.talk.browsing import open_app
from vivace.client import http
from vivace.client.warm import ServerAddress
from vivace.config import Settings
from vivace.errors import FileProblem
from vivace.kept_results import MAX_KEPT, keep_result, read_results
from vivace.server.caller import Caller
from vivace.server.watch.history import History, difference
from vivace.server.watch.metrics import Metrics, Totals

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_the_server_remembers_how_fast_it_was(address: ServerAddress, folder: Path) -> None:
    """After a turn there is a sample with its speed and its wait."""
    async with facing(address) as face:
        conversation = await face.begin(folder=str(folder))
        await face.ask("conversation.send", conversation=conversation, text="a long one, please?")
        await face.event("turn.ended")
        answer = await face.ask("metrics.read")
        last = answer["samples"][-1]
        assert last["turns"] >= 1
        assert max(each["tokens_per_s"] for each in answer["samples"]) > 0
        assert max(each["first_token_ms"] for each in answer["samples"]) > 0


async def test_samples_are_differences() -> None:
    """Speed is tokens behind the first by the time between them; shares are of what was new."""
    before = Totals(generated=10, writing_s=1, begun=1, first_token_s=0.5, queried=100, hits=50, ended=1)
    now = Totals(generated=111, writing_s=3, begun=2, first_token_s=0.7, queried=300, hits=200, ended=3)
    sample = difference(before, now, at_s=7)
    assert (sample.at_s, sample.tokens_per_s, sample.cached_share, sample.turns) == (7, 50, 0.75, 2)
    assert round(sample.first_token_ms) == 200
    assert difference(now, now, 8).tokens_per_s == 0


async def test_no_work_leaves_no_sample() -> None:
    """An idle server keeps nothing."""
    history = History(Metrics())
    assert history.read(Caller()).samples == history.read(Caller()).samples == []


async def test_results_are_kept_and_listed(address: ServerAddress, served: Settings) -> None:
    """What a bench found is listed, the newest first; too old ones and broken files are not."""
    for number in range(MAX_KEPT + 2):
        keep_result(served, "bench wire", {"number": number})
    (served.state_dir / "results" / "99999999-broken.json").write_text("{")
    assert len(read_results(served, 1000)) == MAX_KEPT
    async with facing(address) as face:
        (newest,) = (await face.ask("results.list", limit=2))["results"]
        assert (newest["name"], newest["result"]) == ("bench wire", {"number": MAX_KEPT + 1})


async def test_a_task_is_started_watched_and_stopped(address: ServerAddress, folder: Path) -> None:
    """It is in the list with its state, its log can be read on from any line, and it ends when told to."""
    (folder / "task.py").write_text("def show():\n    pass\n")
    async with facing(address) as face:
        await face.ask("hello", folder=str(folder))
        task = (await face.ask("tasks.start", instruction="make @task.py:show shout"))["task"]
        (row,) = [each for each in (await face.ask("tasks.list"))["tasks"] if each["task"] == task]
        assert (row["instruction"], row["folder"]) == ("make @task.py:show shout", str(folder))
        log = await face.ask("tasks.log", task=task)
        assert log["lines"][0]["type"] == "task.queued"
        await face.ask("tasks.stop", task=task)
        (row,) = [each for each in (await face.ask("tasks.list"))["tasks"] if each["task"] == task]
        assert row["status"] in ("stopped", "done", "failed")
        assert (await face.ask("tasks.log", task=task, after=10_000))["lines"] == []
        assert isinstance((await face.ask("tasks.diff", task=task))["text"], str)


async def test_vivace_web_prints_an_address_that_works_once(
    address: ServerAddress, served: Settings, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where no browser can be opened; the folder goes along."""
    await asyncio.to_thread(open_app, served, folder, opens_browser=False)
    printed = urlsplit(capsys.readouterr().out.strip())
    assert (printed.port, printed.path) == (address.port, "/enter")
    assert parse_qs(printed.query)["folder"] == [str(folder)]
    path = f"{printed.path}?{printed.query}"
    statuses = [(await asyncio.to_thread(http.get, address.port, path))[0] for _ in range(2)]
    assert statuses == [200, 403]


async def test_vivace_web_needs_a_folder(served: Settings, folder: Path) -> None:
    """What is no folder is said before a server is started."""
    with pytest.raises(FileProblem):
        open_app(served, folder / "nothing", opens_browser=False)
    assert CliRunner().invoke(app, ["web", "--help"]).exit_code == 0
