"""Any model from the hub: chosen, looked into, downloaded, checked, gone on with. All on loopback."""

import hashlib
import http.client
import io
import os
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.models.hub.fake_hub import FakeHub, gguf, serving
from tests.models.test_download import Watcher, wait_until
from vivace.config import Settings
from vivace.errors import ModelUnavailable, UsageError, VivaceError
from vivace.models import store
from vivace.models.choices import choices
from vivace.models.download import ensure
from vivace.models.hub import records
from vivace.models.hub.client import Hub, _Redirects
from vivace.models.progress import Silent

REPO = "someone/tiny-GGUF"
NAME = f"hf:{REPO}:tiny-q4_k_m.gguf"
CONTENT = gguf(padding=100_000)  # more than a header is read of
PULL_IN_A_PROCESS = """
import sys
from pathlib import Path
from vivace.config import Settings
from vivace.models.download import ensure
from vivace.models.progress import Silent
settings = Settings(cache_dir=Path(sys.argv[1]), state_dir=Path(sys.argv[1]), hub_url=sys.argv[2])
ensure(settings, sys.argv[3], Silent())
"""


@pytest.fixture
def hub() -> Iterator[FakeHub]:
    with serving() as fake:
        fake.add(REPO, {"tiny-q8_0.gguf": gguf(vocabulary=60), "tiny-q4_k_m.gguf": CONTENT})
        yield fake


@pytest.fixture
def settings(tmp_path: Path, hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> Settings:
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    monkeypatch.delenv("HF_TOKEN", raising=False)
    return Settings(cache_dir=tmp_path, state_dir=tmp_path, hub_url=hub.url)


def start_pull(settings: Settings) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", PULL_IN_A_PROCESS, str(settings.cache_dir), settings.hub_url, NAME]
    return subprocess.Popen(command, stderr=subprocess.PIPE, start_new_session=True)


def part_bytes(settings: Settings) -> int:
    part = settings.models_dir / "hf" / REPO / "tiny-q4_k_m.gguf.part"
    return part.stat().st_size if part.exists() else 0


@pytest.mark.parametrize("name", [f"hf:{REPO}", f"hf:{REPO}:Q4_K_M", NAME])
def test_a_repository_a_format_or_a_file(settings: Settings, name: str) -> None:
    """All three name the same model; the usual format is taken where none is named."""
    path = ensure(settings, name, Silent())
    assert path.read_bytes() == CONTENT
    assert path == settings.models_dir / "hf" / REPO / "tiny-q4_k_m.gguf"
    assert store.full_name(settings, name) == NAME
    assert store.is_present(settings, NAME)
    card = records.find(settings, NAME)
    assert card is not None
    assert (card.licence, card.context_tokens, card.family) == ("apache-2.0", 4096, "template")
    assert NAME in [choice.name for choice in choices(settings) if choice.path]


def test_a_file_comes_from_the_commit_that_was_listed(settings: Settings, hub: FakeHub) -> None:
    """What is pushed while we download cannot be mixed with it."""
    ensure(settings, NAME, Silent())
    assert all("/resolve/main/" not in asked.path for asked in hub.asked)


def test_a_short_name_is_a_model_of_the_hub(settings: Settings, hub: FakeHub) -> None:
    """A recommended model is found by its short name, and keeps it."""
    hub.add("Qwen/Qwen2.5-Coder-7B-Instruct-GGUF", {"qwen2.5-coder-7b-instruct-q4_k_m.gguf": CONTENT})
    assert not store.is_present(settings, "qwen2.5-coder-7b")
    ensure(settings, "qwen2.5-coder-7b", Silent())
    assert store.is_present(settings, "qwen2.5-coder-7b")
    assert [choice.name for choice in choices(settings)].count("qwen2.5-coder-7b") == 1


def test_lists_come_in_pages(settings: Settings, hub: FakeHub) -> None:
    """A repository with more files than a page has is read to its end."""
    hub.page_size = 2
    assert ensure(settings, NAME, Silent()).read_bytes() == CONTENT


def test_shards_come_together(settings: Settings, hub: FakeHub) -> None:
    """A model in several files is here when all of them are, under the name of the first."""
    shards = {f"big/m-Q4_K_M-0000{n}-of-00003.gguf": gguf(vocabulary=50 + n) for n in (1, 2, 3)}
    hub.add("someone/big", shards)
    watcher = Watcher()
    path = ensure(settings, "hf:someone/big", watcher)
    assert path.name == "m-Q4_K_M-00001-of-00003.gguf"
    assert [each.read_bytes() for each in store.shards_of(path)] == list(shards.values())
    assert "(2 of 3) from the model hub" in " ".join(watcher.steps)
    card = store.find_card(settings, store.full_name(settings, "hf:someone/big"))
    assert card is not None
    store.shards_of(path)[2].unlink()
    assert not store.is_complete(settings, card)
    assert store.remove(settings, card) > 0
    assert store.find_card(settings, card.name) is None


def test_a_missing_shard_is_told(settings: Settings, hub: FakeHub) -> None:
    """Two of three shards are no model."""
    hub.add("someone/torn", {f"m-Q4_K_M-0000{n}-of-00003.gguf": CONTENT for n in (1, 3)})
    with pytest.raises(ModelUnavailable, match="2 of 3 shards"):
        ensure(settings, "hf:someone/torn", Silent())


def test_the_hubs_checksum_decides(settings: Settings, hub: FakeHub) -> None:
    """Bytes with another sha-256 than the hub's list says are deleted."""
    hub.repos[REPO].sums = {"tiny-q4_k_m.gguf": hashlib.sha256(b"other").hexdigest()}
    with pytest.raises(ModelUnavailable, match="wrong sha-256"):
        ensure(settings, NAME, Silent())
    assert not store.is_present(settings, NAME)
    assert part_bytes(settings) == 0


def test_killed_pull_goes_on(settings: Settings, hub: FakeHub) -> None:
    """kill -9 in the middle loses nothing: the next pull asks for the rest only."""
    hub.store.hold_after_bytes = 90_000
    process = start_pull(settings)
    wait_until(lambda: part_bytes(settings) == 90_000)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    hub.store.hold_after_bytes = None
    hub.store.released.set()
    hub.store.asked.clear()
    assert ensure(settings, NAME, Silent()).read_bytes() == CONTENT
    assert [asked.begin for asked in hub.store.asked] == [90_000], "its header was read before"


def test_a_changed_file_begins_again(settings: Settings, hub: FakeHub) -> None:
    """What was downloaded of a file that the repository has replaced is of no use."""
    hub.store.hold_after_bytes = 90_000
    process = start_pull(settings)
    wait_until(lambda: part_bytes(settings) == 90_000)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    hub.store.hold_after_bytes = None
    hub.store.released.set()
    newer = CONTENT[:50_000] + b"!" + CONTENT[50_001:]
    hub.repos[REPO].files["tiny-q4_k_m.gguf"] = newer
    assert ensure(settings, NAME, Silent()).read_bytes() == newer


def test_two_pulls_are_one(settings: Settings, hub: FakeHub) -> None:
    """The second of two pulls waits for the first and then finds the file."""
    hub.store.hold_after_bytes = 90_000
    process = start_pull(settings)
    wait_until(lambda: part_bytes(settings) == 90_000)
    watcher = Watcher()
    second = threading.Thread(target=ensure, args=(settings, NAME, watcher))
    second.start()
    wait_until(lambda: any("Waiting" in step for step in watcher.steps))
    hub.store.released.set()
    second.join()
    assert process.communicate()[1] == b""
    assert [asked.begin for asked in hub.store.asked if asked.path.endswith("q4_k_m.gguf")] == [0, 0]


def test_a_lost_card_costs_a_checksum(settings: Settings, hub: FakeHub) -> None:
    """Where only the card of a model is gone, its file is checked and kept."""
    path = ensure(settings, NAME, Silent())
    path.with_name(f"{path.name}.card.json").write_text("{")
    assert not store.is_present(settings, NAME)
    hub.store.asked.clear()
    assert ensure(settings, NAME, Silent()).read_bytes() == CONTENT
    assert all(asked.begin < len(CONTENT) for asked in hub.store.asked)
    assert len(hub.store.asked) == 1, "the header, and no download"


def test_the_token_stays_with_the_hub(
    settings: Settings, hub: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A gated repository is read with the token, which no other host ever sees."""
    monkeypatch.setenv("HF_TOKEN", "hf_good")
    hub.repos[REPO].is_gated = True
    assert ensure(settings, NAME, Silent()).read_bytes() == CONTENT
    assert {asked.token for asked in hub.asked} == {"hf_good"}
    assert {asked.token for asked in hub.store.asked} == {""}


@pytest.mark.parametrize(
    ("token", "words"), [("", "make a token"), ("hf_other", "with the account of your HF_TOKEN")]
)
def test_gated_repositories_are_explained(
    settings: Settings, hub: FakeHub, monkeypatch: pytest.MonkeyPatch, token: str, words: str
) -> None:
    """It is told what to accept, where, and with which account."""
    monkeypatch.setenv("HF_TOKEN", token)
    hub.repos[REPO].is_gated = True
    with pytest.raises(ModelUnavailable, match="is gated") as caught:
        ensure(settings, NAME, Silent())
    assert words in caught.value.hint
    assert f"{hub.url}/{REPO}" in caught.value.hint
    assert token not in str(caught.value) or not token


def test_a_token_is_not_sent_in_the_clear(hub: FakeHub) -> None:
    """An address without encryption gets no token, unless it is this machine."""
    assert Hub("http://hub.example", "secret")._token == ""
    assert Hub("https://hub.example", "secret")._token == Hub(hub.url, "secret")._token == "secret"


def test_a_redirect_to_another_scheme_is_not_followed(settings: Settings, hub: FakeHub) -> None:
    """A hub that leads to a file or an FTP server is refused."""
    hub.redirect_to = "ftp://127.0.0.1/tiny.gguf"
    with pytest.raises(VivaceError, match="redirects to ftp"):
        ensure(settings, NAME, Silent())


def test_a_redirect_from_https_to_http_is_not_followed() -> None:
    """Nobody on the way can read or change what the hub sends."""
    request = urllib.request.Request("https://hub.example/a")
    handler = _Redirects(Hub("https://hub.example"))
    headers = http.client.HTTPMessage()
    assert handler.redirect_request(request, io.BytesIO(), 302, "", headers, "https://store.example/a")
    with pytest.raises(urllib.error.URLError, match="redirects to http"):
        handler.redirect_request(request, io.BytesIO(), 302, "", headers, "http://store.example/a")


def test_an_unknown_chat_format_is_refused_before_the_download(settings: Settings, hub: FakeHub) -> None:
    """The header of the file says it; not a byte more is asked for."""
    content = gguf(architecture="gemma", template="<start_of_turn>{{ x }}", padding=3_000_000)
    hub.add("someone/gemma", {"gemma-Q4_K_M.gguf": content})
    with pytest.raises(
        UsageError, match=r"chat format of .*gemma.* cannot be spoken: it leaves out a message"
    ):
        ensure(settings, "hf:someone/gemma", Silent())
    assert len(hub.store.asked) == 1
    assert not (settings.models_dir / "hf").exists()


def test_an_architecture_that_llama_cpp_does_not_know_is_refused(settings: Settings, hub: FakeHub) -> None:
    """The library that is built here is asked, after the header and before the download."""
    hub.add("someone/new", {"new-Q4_K_M.gguf": gguf(architecture="brandnew", padding=3_000_000)})
    with pytest.raises(UsageError, match=r"cannot load .* 'brandnew'") as caught:
        ensure(settings, "hf:someone/new", Silent())
    assert "Update Vivace" in caught.value.hint
    assert len(hub.store.asked) == 1
    assert not (settings.models_dir / "hf").exists()


@pytest.mark.parametrize(
    ("architecture", "fields", "memory"),
    [
        ("qwen2", {}, "exact"),
        ("qwen35", {"qwen35.nextn_predict_layers": 1}, "checkpoints"),
        ("gpt-oss", {"gpt-oss.attention.sliding_window": 128}, "bounded"),
    ],
)
def test_the_card_says_how_far_the_memory_goes_back(
    settings: Settings, hub: FakeHub, architecture: str, fields: dict[str, object], memory: str
) -> None:
    """Recurrent states are known to llama.cpp; windows and drafting heads stand in the header."""
    hub.add("someone/m", {"m-Q4_K_M.gguf": gguf(fields, architecture=architecture)})
    ensure(settings, "hf:someone/m", Silent())
    [card] = records.cards(settings)
    assert card.memory == memory
    assert card.has_mtp == ("nextn" in str(fields))


def test_what_is_no_gguf_is_refused_before_the_download(settings: Settings, hub: FakeHub) -> None:
    """A file that only has the name is not downloaded."""
    hub.add("someone/fake", {"m.gguf": b"<html>" * 1000})
    with pytest.raises(ModelUnavailable, match="does not begin as a GGUF file does"):
        ensure(settings, "hf:someone/fake", Silent())


def test_a_repository_that_is_not_there(settings: Settings) -> None:
    """The hub says 401 for what does not exist, too; that is said plainly."""
    with pytest.raises(UsageError, match="There is no some/thing on the model hub, or it is private"):
        ensure(settings, "hf:some/thing", Silent())


def test_a_file_that_is_not_there(settings: Settings) -> None:
    """The formats that the repository has are named."""
    with pytest.raises(UsageError, match="has no Q2_K") as caught:
        ensure(settings, f"hf:{REPO}:Q2_K", Silent())
    assert "tiny-q4_k_m.gguf, tiny-q8_0.gguf" in caught.value.hint


@pytest.mark.parametrize(
    ("status", "headers", "words"),
    [
        (429, {"Retry-After": "7"}, "in 7 s"),
        (503, {}, "later"),
        (200, {}, ""),
    ],
)
def test_a_hub_that_cannot_answer(
    settings: Settings, hub: FakeHub, status: int, headers: dict[str, str], words: str
) -> None:
    """A tired, broken or foolish hub is an error with what to do, and nothing is left behind."""
    hub.status = (status, headers)
    with pytest.raises(ModelUnavailable) as caught:
        ensure(settings, NAME, Silent())
    assert words in caught.value.hint
    assert not (settings.models_dir / "hf").exists()


@pytest.mark.parametrize(
    "name",
    [
        "hf:",
        "hf:a",
        "hf:a/b/c",
        "hf:../b",
        "hf:a/..",
        "hf:a/b:../../x.gguf",
        "hf:a/b:/x.gguf",
        "hf:a/b:.x.gguf",
    ],
)
def test_names_that_are_none(settings: Settings, name: str) -> None:
    """What cannot be a repository is refused before anybody is asked; no name leads out of the folder."""
    with pytest.raises(UsageError, match="not the name of a model"):
        ensure(settings, name, Silent())


def test_hostile_paths_are_not_listed(settings: Settings, hub: FakeHub) -> None:
    """A repository cannot name a file that would land elsewhere."""
    hub.add("someone/evil", {"../../x-Q4_K_M.gguf": CONTENT, "a/../../y.gguf": CONTENT})
    with pytest.raises(UsageError, match="no GGUF file"):
        ensure(settings, "hf:someone/evil", Silent())


def test_nothing_is_asked_offline(settings: Settings, hub: FakeHub) -> None:
    """With offline set, the hub is not even asked what a name means."""
    with pytest.raises(ModelUnavailable, match="offline"):
        ensure(settings.having(offline=True), NAME, Silent())
    assert hub.asked == []
