"""Files that Ollama, LM Studio and the hub's cache have: linked after their checksum held, never touched."""

import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.models.hub.fake_hub import FakeHub, gguf, serving
from tests.models.test_download import Watcher
from vivace.config import Settings, foreign_folders
from vivace.errors import ModelUnavailable
from vivace.models import adopting, store
from vivace.models.download import ensure, pull
from vivace.models.hub import records
from vivace.models.progress import Silent

REPO = "someone/tiny-GGUF"
FILE = "tiny-q4_k_m.gguf"
NAME = f"hf:{REPO}:{FILE}"
CONTENT = gguf(padding=100_000)
SUM = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home in which only the test's programs have files."""
    for name in ("OLLAMA_MODELS", "HF_HOME", "HF_HUB_CACHE", "XDG_CACHE_HOME", "HF_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def hub() -> Iterator[FakeHub]:
    with serving() as fake:
        fake.add(REPO, {FILE: CONTENT})
        yield fake


@pytest.fixture
def settings(tmp_path: Path, hub: FakeHub) -> Settings:
    return Settings(cache_dir=tmp_path / "cache", state_dir=tmp_path / "state", hub_url=hub.url)


def put(path: Path, content: bytes = CONTENT) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def in_lm_studio(home: Path, folder: str = ".lmstudio/models", content: bytes = CONTENT) -> Path:
    return put(home / folder / REPO / FILE, content)


def in_hub_cache(root: Path, content: bytes = CONTENT) -> Path:
    """As huggingface_hub lays it out: blobs by their sha-256, a snapshot of links."""
    folder = root / "models--someone--tiny-GGUF"
    blob = put(folder / "blobs" / hashlib.sha256(content).hexdigest(), content)
    snapshot = folder / "snapshots" / "c0ffee"
    snapshot.mkdir(parents=True)
    (snapshot / FILE).symlink_to(f"../../blobs/{blob.name}")
    put(folder / "refs/main", b"c0ffee")
    return blob


def in_ollama(root: Path, content: bytes = CONTENT, tag: str = f"hf.co/{REPO}/Q4_K_M") -> Path:
    digest = hashlib.sha256(content).hexdigest()
    layers = [
        {
            "mediaType": "application/vnd.ollama.image.model",
            "digest": f"sha256:{digest}",
            "size": len(content),
        },
        {"mediaType": "application/vnd.ollama.image.template", "digest": f"sha256:{'0' * 64}", "size": 3},
    ]
    put(root / "manifests" / tag, json.dumps({"schemaVersion": 2, "layers": layers}).encode())
    return put(root / "blobs" / f"sha256-{digest}", content)


def put_in(program: str, home: Path) -> Path:
    match program:
        case "LM Studio":
            return in_lm_studio(home)
        case "the hub's cache":
            return in_hub_cache(home / ".cache/huggingface/hub")
        case _:
            return in_ollama(home / ".ollama/models")


def bytes_asked(hub: FakeHub) -> int:
    return sum(1 for asked in hub.store.asked if asked.path.endswith(FILE))


PROGRAMS = ["LM Studio", "the hub's cache", "Ollama"]


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_file_that_is_here_is_linked(home: Path, settings: Settings, hub: FakeHub, program: str) -> None:
    """The hub is asked for the checksum and the header only; the file stays where and what it was."""
    theirs = put_in(program, home)
    before = theirs.stat()
    watcher = Watcher()
    path = ensure(settings, NAME, watcher)
    assert path.is_symlink()
    assert path.resolve() == theirs.resolve()
    assert path.read_bytes() == CONTENT
    assert bytes_asked(hub) == 1, "the header"
    assert any(f"which {program} has" in step for step in watcher.steps)
    after = theirs.stat()
    assert (after.st_mtime_ns, after.st_nlink, after.st_ino) == (
        before.st_mtime_ns,
        before.st_nlink,
        before.st_ino,
    )
    assert store.is_present(settings, NAME)
    assert adopting.owner_of(path) == program


@pytest.mark.parametrize("program", PROGRAMS)
def test_rm_takes_our_link_only(home: Path, settings: Settings, program: str) -> None:
    """Their file stays, nothing was freed, and nothing of ours is left."""
    theirs = put_in(program, home)
    path = ensure(settings, NAME, Silent())
    card = records.find(settings, NAME)
    assert card is not None
    assert store.remove(settings, card) == 0
    assert theirs.read_bytes() == CONTENT
    assert [each.name for each in path.parent.iterdir()] == [f".{path.name}.lock"]


@pytest.mark.parametrize("program", PROGRAMS)
def test_without_the_hub_a_file_goes_by_its_name(home: Path, settings: Settings, program: str) -> None:
    """Offline the card says that its checksum is our own; asked again, the file is simply there."""
    put_in(program, home)
    offline = settings.having(offline=True)
    path = ensure(offline, f"hf:{REPO}", Silent())
    assert path.is_symlink()
    card = next(card for card in records.cards(settings) if card.hub_repo == REPO)
    assert card.is_sum_ours
    assert card.files[0].sha256 == SUM
    assert (card.family, card.context_tokens) == ("template", 4096)
    assert ensure(offline, f"hf:{REPO}", Silent()) == path


def test_a_hub_that_cannot_be_reached_is_like_offline(home: Path, settings: Settings) -> None:
    """Where the network is down, what is here is used."""
    in_lm_studio(home)
    assert ensure(settings.having(hub_url="http://127.0.0.1:1"), NAME, Silent()).is_symlink()


def test_other_bytes_of_the_same_size_are_not_taken(home: Path, settings: Settings, hub: FakeHub) -> None:
    """The checksum decides: a damaged copy is left alone, and the model is downloaded."""
    damaged = CONTENT[:-1] + b"?"
    theirs = in_lm_studio(home, content=damaged)
    path = ensure(settings, NAME, Silent())
    assert not path.is_symlink()
    assert path.read_bytes() == CONTENT
    assert theirs.read_bytes() == damaged
    assert bytes_asked(hub) == 2


@pytest.mark.parametrize("what", ["gone", "changed"])
def test_a_file_that_is_not_what_it_was_is_said(
    home: Path, settings: Settings, hub: FakeHub, what: str
) -> None:
    """One sentence says whose file it is and what to do. A pull then downloads, through no link."""
    theirs = in_lm_studio(home)
    ensure(settings, NAME, Silent())
    changed = CONTENT[:-1] + b"?"
    if what == "gone":
        theirs.unlink()
    else:
        theirs.write_bytes(changed)
    assert not store.is_present(settings, NAME)
    with pytest.raises(ModelUnavailable, match=f"belongs to LM Studio and .*{what}") as caught:
        ensure(settings, NAME, Silent())
    assert f"vivace models pull {NAME}" in caught.value.hint
    card = records.find(settings, NAME)
    assert card is not None
    path = pull(settings, card, Silent())
    assert path.read_bytes() == CONTENT
    assert not path.is_symlink()
    assert theirs.exists() == (what == "changed")
    assert what == "gone" or theirs.read_bytes() == changed
    assert bytes_asked(hub) == 2


def test_a_link_of_the_users_own_is_their_business(home: Path, settings: Settings, hub: FakeHub) -> None:
    """Who keeps models on another disk links them without our note: such a file is used as it is."""
    path = ensure(settings, NAME, Silent())
    elsewhere = home / "big-disk.gguf"
    elsewhere.parent.mkdir(exist_ok=True)
    path.rename(elsewhere)
    path.symlink_to(elsewhere)
    hub.store.asked.clear()
    assert ensure(settings, NAME, Silent()) == path
    assert hub.store.asked == []
    card = records.find(settings, NAME)
    assert card is not None
    store.remove(settings, card)
    assert elsewhere.read_bytes() == CONTENT


def test_a_lost_card_never_makes_their_file_ours(home: Path, settings: Settings) -> None:
    """Without its card the link is made anew; their file is never what a download appends to."""
    theirs = in_lm_studio(home)
    path = ensure(settings, NAME, Silent())
    path.with_name(f"{path.name}.card.json").unlink()
    assert ensure(settings, NAME, Silent()).resolve() == theirs.resolve()
    assert theirs.read_bytes() == CONTENT


def test_a_part_that_is_a_link_is_not_written_through(home: Path, settings: Settings) -> None:
    """What stands in the place of a download is not followed."""
    theirs = put(home / "other", b"mine")
    part = settings.models_dir / "hf" / REPO / f"{FILE}.part"
    part.parent.mkdir(parents=True)
    part.symlink_to(theirs)
    assert ensure(settings, NAME, Silent()).read_bytes() == CONTENT
    assert theirs.read_bytes() == b"mine"


@pytest.mark.usefixtures("home")
def test_the_programs_own_variables_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """OLLAMA_MODELS, HF_HUB_CACHE and HF_HOME move their folders, and so ours to look in."""
    monkeypatch.setenv("OLLAMA_MODELS", str(tmp_path / "o"))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "h"))
    assert foreign_folders().hub == tmp_path / "h" / "hub"
    in_ollama(tmp_path / "o")
    in_hub_cache(tmp_path / "h" / "hub")
    assert {found.program for found in adopting.find_all()} == {"Ollama", "the hub's cache"}
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "elsewhere"))
    assert [found.program for found in adopting.find_all()] == ["Ollama"]


def test_old_and_new_folders_of_lm_studio(home: Path) -> None:
    """LM Studio moved its folder once; both are looked at, and a name tells the repository."""
    in_lm_studio(home)
    in_lm_studio(home, ".cache/lm-studio/models")
    assert [(found.repo, found.name) for found in adopting.find_all()] == [(REPO, FILE)] * 2


def test_hostile_folders_give_nothing(home: Path, tmp_path: Path) -> None:
    """Links in circles or out of a program's folder, bad names and torn digests are passed over."""
    outside = put(tmp_path / "outside.gguf")
    studio = home / ".lmstudio/models" / REPO
    studio.mkdir(parents=True)
    (studio / "circle.gguf").symlink_to("circle.gguf")
    (studio / "out.gguf").symlink_to(outside)
    (studio / "folder.gguf").mkdir()
    (studio / "up").symlink_to("..")
    put(studio / ".hidden.gguf")
    os.mkfifo(studio / "pipe.gguf")
    ollama = home / ".ollama/models"
    digests: list[object] = [
        "sha256:../../../outside",
        f"/{SUM}",
        f"sha256:{'A' * 64}",
        f"sha256-{SUM}",
        None,
        7,
        f"sha256:{SUM}",
    ]
    for number, digest in enumerate(digests):
        layers = [{"mediaType": "application/vnd.ollama.image.model", "digest": digest}]
        put(ollama / f"manifests/hf.co/{REPO}/t{number}", json.dumps({"layers": layers}).encode())
    put(ollama / "manifests/hf.co/a/b/torn", b"{")
    put(ollama / "manifests/hf.co/a/b/list", b"[1]")
    (ollama / "blobs").mkdir()
    (ollama / "blobs" / f"sha256-{SUM}").symlink_to(outside)
    cache = home / ".cache/huggingface/hub"
    (cache / "models--..--..").mkdir(parents=True)
    put(cache / "models--a--b/snapshots/c/..x.gguf")
    assert adopting.find_all() == []


def test_a_file_that_cannot_be_read_is_passed_over(
    home: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ollama's service may keep its files to itself: then the model is downloaded."""
    theirs = in_ollama(home / ".ollama/models")
    real_open = Path.open

    def refuse(path: Path, *arguments: object, **named: object) -> object:
        if path == theirs:
            raise PermissionError(13, "Permission denied")
        return real_open(path, *arguments, **named)  # type: ignore[call-overload]

    monkeypatch.setattr(Path, "open", refuse)
    assert not ensure(settings, NAME, Silent()).is_symlink()


def test_shards_are_linked_together(home: Path, settings: Settings, hub: FakeHub) -> None:
    """Of a model in several files what is here is linked, and the rest downloaded."""
    shards = {f"m-Q4_K_M-0000{n}-of-00002.gguf": gguf(vocabulary=50 + n) for n in (1, 2)}
    hub.add("someone/big", shards)
    first, second = shards
    put(home / ".lmstudio/models/someone/big" / second, shards[second])
    path = ensure(settings, "hf:someone/big", Silent())
    assert [each.is_symlink() for each in store.shards_of(path)] == [False, True]
    assert [each.read_bytes() for each in store.shards_of(path)] == [shards[first], shards[second]]
