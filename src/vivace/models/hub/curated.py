"""Models of the hub that we recommend for code, under short names.

Owns that list: where each is, about how large, its licence, and how much of it is read for a token. The exact
files, sizes and checksums come from the hub when one is pulled. Those that we pin are in `catalog`.
"""

import msgspec

from vivace.models.hub.names import HubName


class Curated(msgspec.Struct, frozen=True):
    name: str
    title: str
    hub: HubName
    size_bytes: int  # about
    licence: str
    context_tokens: int  # that it was trained for
    purpose: str
    active_share: float = 1.0  # of its bytes that are read for one token


def _qwen_coder(size: str, size_bytes: int, purpose: str, licence: str = "Apache-2.0") -> Curated:
    return Curated(
        name=f"qwen2.5-coder-{size.lower()}",
        title=f"Qwen2.5-Coder {size} Instruct, Q4_K_M",
        hub=HubName(f"Qwen/Qwen2.5-Coder-{size}-Instruct-GGUF", "Q4_K_M"),
        size_bytes=size_bytes,
        licence=licence,
        context_tokens=32_768,
        purpose=purpose,
    )


CURATED: tuple[Curated, ...] = (
    _qwen_coder("3B", 2_100_000_000, "a little better than the default", "Qwen research, not commercial"),
    _qwen_coder("7B", 4_680_000_000, "code, and tools in short tasks"),
    _qwen_coder("14B", 8_990_000_000, "code and tools"),
    _qwen_coder("32B", 19_850_000_000, "code and tools, for a GPU"),
    Curated(
        name="qwen3-4b",
        title="Qwen3 4B Instruct 2507, Q4_K_M",
        hub=HubName("unsloth/Qwen3-4B-Instruct-2507-GGUF", "Q4_K_M"),
        size_bytes=2_500_000_000,
        licence="Apache-2.0",
        context_tokens=262_144,
        purpose="talk and code in a long context",
    ),
    Curated(
        name="qwen3-coder-30b",
        title="Qwen3-Coder 30B-A3B Instruct, Q4_K_M",
        hub=HubName("unsloth/Qwen3-Coder-30B-A3B-Instruct-GGUF", "Q4_K_M"),
        size_bytes=18_560_000_000,
        licence="Apache-2.0",
        context_tokens=262_144,
        purpose="tools and long tasks; quick for its size",
        active_share=0.11,  # 3.3 of 30.5 billion parameters
    ),
    Curated(
        name="devstral-small",
        title="Devstral Small 2507 24B, Q4_K_M",
        hub=HubName("unsloth/Devstral-Small-2507-GGUF", "Q4_K_M"),
        size_bytes=14_330_000_000,
        licence="Apache-2.0",
        context_tokens=131_072,
        purpose="tools and long tasks in repositories",
    ),
    Curated(
        name="gpt-oss-20b",
        title="gpt-oss 20B, MXFP4",
        hub=HubName("ggml-org/gpt-oss-20b-GGUF", "MXFP4"),
        size_bytes=12_110_000_000,
        licence="Apache-2.0",
        context_tokens=131_072,
        purpose="reasons before it answers, calls tools",
        active_share=0.22,  # 3.6 of 20.9 billion parameters, attention in 16 bits
    ),
)


def curated(name: str) -> Curated | None:
    """Return the recommended model of that name, or None."""
    return next((model for model in CURATED if model.name == name), None)
