"""Who may ask for which model: keys for what is listed, the owner for files too, scripts where allowed."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from tests.server.serving import fetch, script, status_of, until_ready
from vivace.cli.server.keys import keys as command
from vivace.client import warm
from vivace.client.warm import ServerAddress
from vivace.config import Settings
from vivace.engine.wire.job import Job
from vivace.errors import StartError
from vivace.server.backends.native.engines.process import EngineProcess

Start = Callable[..., Settings]


@pytest.fixture
def scripted(start: Start, tmp_path: Path) -> Settings:
    """A server that may play scripts, with one loaded."""
    settings = start(model=script(tmp_path, replies={"": "Hello there."}), allow_scripted=True)
    until_ready(settings)
    return settings


def key_for(settings: Settings) -> ServerAddress:
    """The server's address with a key instead of the owner's token."""
    folders = {"VIVACE_STATE_DIR": str(settings.state_dir), "VIVACE_CACHE_DIR": str(settings.cache_dir)}
    done = CliRunner().invoke(command, ["add", "ci"], env=folders, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return msgspec.structs.replace(warm.ensure_server(settings), token=done.stdout.split()[0])


def ask(address: ServerAddress, model: str | None = None) -> tuple[int, Any]:
    return fetch(address, "POST", "/v1/responses", {"input": "hi"} | ({"model": model} if model else {}))


def check_refused(answer: tuple[int, Any], model: str) -> None:
    """404 in OpenAI's shape."""
    status, body = answer
    assert status == 404
    assert body["error"]["code"] == "model_not_found"
    assert body["error"]["param"] == "model"
    assert body["error"]["type"] == "invalid_request_error"
    assert model in body["error"]["message"]


def test_a_key_gets_what_is_listed_and_nothing_else(scripted: Settings, smol: Path, tmp_path: Path) -> None:
    """A file, another script and a missing file are refused alike; the loaded engine stays."""
    key, before = key_for(scripted), status_of(scripted).engine
    other = script(tmp_path, "other", replies={"": "Mine."}, stamps=str(tmp_path / "precious"))
    (tmp_path / "precious").write_text("kept")
    for model in (str(smol), other, "/no/such/file.gguf", "scripted:/no/such/file"):
        check_refused(ask(key, model), model)
    messages = {ask(key, model)[1]["error"]["message"].replace(model, "") for model in (str(smol), other)}
    assert len(messages) == 1, "whether a file exists is not told"
    assert (tmp_path / "precious").read_text() == "kept"
    after = status_of(scripted).engine
    assert (after.pid, after.model) == (before.pid, before.model)
    listed = fetch(key, "GET", "/v1/models")[1]["data"]
    assert [ask(key, each["id"])[0] for each in listed] == [200] * len(listed)
    assert ask(key)[0] == 200


def test_the_owner_may_name_a_file(scripted: Settings, tmp_path: Path) -> None:
    """What the owner's token asks for is loaded."""
    other = script(tmp_path, "other", replies={"": "Mine."})
    status, body = ask(warm.ensure_server(scripted), other)
    assert status == 200, body
    assert body["output"][0]["content"][0]["text"] == "Mine."


def test_scripts_are_refused_unless_allowed(start: Start, shallow: Path, tmp_path: Path) -> None:
    """A server of ordinary settings plays no script, not even for its owner."""
    settings = start(model=str(shallow), context_tokens=512, allow_scripted=False)
    before = until_ready(settings).engine
    model = script(tmp_path, replies={"": "Hello there."})
    check_refused(ask(warm.ensure_server(settings), model), model)
    assert status_of(settings).engine.pid == before.pid


async def test_an_engine_refuses_a_script_unless_its_job_allows_it(tmp_path: Path) -> None:
    """Whoever starts an engine must say that scripts may be played; the script is not even read."""
    for fields in ({"replies": {"": "x"}}, {"replies": {"": "x"}, "is_engineless": True}):
        model = script(tmp_path, **fields)
        engine = EngineProcess()
        with pytest.raises(StartError, match="allow_scripted"):
            await engine.begin(Job(model=model, path="", context_tokens=512))
        await engine.close()
        allowed = EngineProcess()
        await allowed.begin(Job(model=model, path="", context_tokens=512, allow_scripted=True))
        await allowed.close()
