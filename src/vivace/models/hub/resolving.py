"""From a name to the card of a model on the hub: its files, their checksums, and whether we can talk to it.

Owns that order, all of it before a download: the repository's commit, its list of files, the header of the
first file. Does not download (`download`).
"""

import http.client
import urllib.error
from typing import Any

import msgspec

from vivace.config import Settings
from vivace.errors import ModelUnavailable, UsageError
from vivace.models.catalog import ModelCard, ModelFile
from vivace.models.hub import records
from vivace.models.hub.client import Hub, hub_of, reach
from vivace.models.hub.curated import CURATED, Curated, curated
from vivace.models.hub.header import Header, NotGguf, read_header
from vivace.models.hub.listing import HubFile, choose_files, gguf_files
from vivace.models.hub.names import HubName, read_name


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
    """Add what the file itself says; refuse a model whose chat format is not known."""
    from vivace.models.families.choose import known  # all families

    told = known(header.template or header.architecture)
    if told.refusal:
        raise UsageError(
            f"The chat format of {card.name} cannot be spoken: {told.refusal}",
            "Nothing was downloaded. Choose another model, or a file with another chat template.",
        )
    changes: dict[str, Any] = {"family": told.family, "notes": told.notes}
    if header.context_tokens:
        changes["context_tokens"] = header.context_tokens
    if header.tensor_bytes:
        changes["active_share"] = header.active_share
    return msgspec.structs.replace(card, **changes)
