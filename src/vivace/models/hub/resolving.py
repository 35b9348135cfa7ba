"""From a name to the card of a model on the hub: its files, their checksums, and whether we can run it.

Owns that order, all of it before a download: the repository's commit, its list of files, the header of the
first file. Where the hub cannot be asked, the same from files that other programs have. Does not download
(`download`) or link (`adopting`).
"""

import contextlib
import http.client
import urllib.error
from pathlib import Path
from typing import Any

import msgspec

from vivace.config import Settings
from vivace.errors import ModelUnavailable, UsageError
from vivace.models import adopting
from vivace.models.catalog import Memory, ModelCard, ModelFile
from vivace.models.hub import records
from vivace.models.hub.client import Hub, hub_of, reach
from vivace.models.hub.curated import CURATED, Curated, curated
from vivace.models.hub.header import Header, NotGguf, read_header
from vivace.models.hub.listing import HubFile, choose_files, gguf_files
from vivace.models.hub.names import HubName, read_name
from vivace.models.progress import Progress


class _About(msgspec.Struct):
    sha: str
    tags: list[str] = []


def resolve(settings: Settings, name: str) -> ModelCard:
    """Return the card of a model as the hub has it now. `name` is `hf:…` or one of the recommended."""
    known = curated(name)
    wanted = known.hub if known else read_name(name)
    hub = hub_of(settings)
    if problem := reach(hub.url):
        raise ModelUnavailable(
            f"The model hub at {hub.url} cannot be reached: {problem}.",
            "Check the network, or name a mirror with HF_ENDPOINT.",
        )
    about = _about(hub, wanted.repo)
    files = choose_files(wanted, gguf_files(hub.read_json(wanted.repo, f"/tree/{about.sha}?recursive=true")))
    card = _card(wanted, files, about, known or _curated_by_files(wanted, files))
    before = records.find(settings, card.name)
    if before and before.files == card.files:  # its header was read then
        return msgspec.structs.replace(before, hub_revision=about.sha)
    return _with_header(card, _header(hub, card, files[0]))


def resolve_here(settings: Settings, name: str, progress: Progress) -> ModelCard | None:
    """Return the card of a model of which another program has the files; None if none has.

    For when the hub cannot be asked. The files are chosen by their names; their checksums are our own.
    """
    from vivace.models.download import sum_of

    known = curated(name)
    wanted = known.hub if known else read_name(name)
    for program in ("the hub's cache", "LM Studio", "Ollama"):
        found = {
            each.name: each
            for each in adopting.find_all()
            if each.program == program and each.repo.lower() == wanted.repo.lower()
        }
        with contextlib.suppress(UsageError, ModelUnavailable, OSError):
            listed = [HubFile(each.name, each.size_bytes, each.sha256) for each in found.values()]
            chosen = choose_files(wanted, listed)
            label = f"{name}, which {program} has"
            files = tuple(
                msgspec.structs.replace(
                    file,
                    sha256=file.sha256
                    or sum_of(Path(found[file.path].path), file.size_bytes, label, progress),
                )
                for file in chosen
            )
            card = _card(wanted, files, _About("main"), known or _curated_by_files(wanted, files))
            before = records.find(settings, card.name)
            if before and before.files == card.files:
                return before
            card = msgspec.structs.replace(card, is_sum_ours=True)
            return _with_header(card, _header_here(Path(found[files[0].path].path)))
    return None


def _header_here(path: Path) -> Header:
    with path.open("rb") as file:
        try:
            return read_header(
                lambda begin, end: (file.seek(begin), file.read(end - begin))[1], path.stat().st_size
            )
        except NotGguf as error:
            raise ModelUnavailable(f"{path} is no GGUF file that can be used: {error}.") from error


def _about(hub: Hub, repo: str) -> _About:
    try:
        about = msgspec.convert(hub.read_json(repo, "")[0], _About)
    except msgspec.ValidationError as error:
        raise ModelUnavailable(f"What the model hub says of {repo} cannot be read: {error}.") from error
    if not about.sha.isalnum():
        raise ModelUnavailable(f"The model hub names no commit of {repo}.", "Try again later.")
    return about


def _card(wanted: HubName, files: tuple[HubFile, ...], about: _About, known: Curated | None) -> ModelCard:
    licences = [tag.removeprefix("license:") for tag in about.tags if tag.startswith("license:")]
    return ModelCard(
        name=known.name if known else str(HubName(wanted.repo, files[0].path)),
        title=known.title if known else f"{wanted.repo}, {files[0].path}",
        files=tuple(
            ModelFile(records.local_name(wanted.repo, file.path), file.size_bytes, file.sha256, file.path)
            for file in files
        ),
        licence=known.licence if known else (licences or ["not stated"])[0],
        context_tokens=known.context_tokens if known else 0,
        purpose=known.purpose if known else "from the hub",
        family="",
        hub_repo=wanted.repo,
        hub_revision=about.sha,
        active_share=known.active_share if known else 1.0,
        kv_token_bytes=known.kv_token_bytes if known else 0,
    )


def _curated_by_files(wanted: HubName, files: tuple[HubFile, ...]) -> Curated | None:
    """Return the recommended model that these files are, however they were asked for."""
    for model in CURATED:
        if model.hub.repo == wanted.repo and model.hub.wanted.lower() in files[0].path.lower():
            return model
    return None


def _header(hub: Hub, card: ModelCard, file: HubFile) -> Header:
    assert card.hub_repo is not None
    url = hub.file_url(card.hub_repo, card.hub_revision, file.path)

    def read(begin: int, end: int) -> bytes:
        with hub.open(url, begin, end) as answer:
            if answer.status != http.client.PARTIAL_CONTENT and begin:
                raise NotGguf("the hub does not send a part of it")
            return answer.read(end - begin)

    try:
        return read_header(read, file.size_bytes)
    except NotGguf as error:
        raise ModelUnavailable(
            f"{file.path} of {card.hub_repo} is no GGUF file that can be used: {error}.", "Choose another."
        ) from error
    except (urllib.error.URLError, http.client.HTTPException, OSError) as error:
        raise hub.refusal(card.hub_repo, error) from error


def _with_header(card: ModelCard, header: Header) -> ModelCard:
    """Add what the file itself says; refuse a model that we cannot load or talk to."""
    from vivace.models.families.choose import known  # all families

    memory = _memory(card, header)
    told = known(header.template or header.architecture)
    if told.refusal:
        raise UsageError(
            f"The chat format of {card.name} cannot be spoken: {told.refusal}",
            "Nothing was downloaded. Choose another model, or a file with another chat template.",
        )
    changes: dict[str, Any] = {"family": told.family, "notes": told.notes, "memory": memory}
    changes["has_mtp"] = bool(header.mtp_layers)
    if header.context_tokens:
        changes["context_tokens"] = header.context_tokens
    if header.kv_token_bytes:
        changes["kv_token_bytes"] = header.kv_token_bytes
    if header.tensor_bytes:
        changes["active_share"] = header.active_share
    return msgspec.structs.replace(card, **changes)


def _memory(card: ModelCard, header: Header) -> Memory:
    """Return how far the model's memory goes back; raise UsageError if llama.cpp cannot load it."""
    from vivace.models.gguf_vocab import state_of  # llama.cpp

    has_state = state_of(header.architecture)
    if has_state is None:
        raise UsageError(
            f"The llama.cpp that is built here cannot load {card.name}: it does not know the architecture "
            f"{header.architecture[:40]!r}. Nothing was downloaded.",
            "Update Vivace, which builds a newer one, or choose a model from `vivace models`.",
        )
    return "checkpoints" if has_state else "bounded" if header.window_tokens else "exact"
