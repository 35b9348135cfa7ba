"""Models of the hub that we recommend for code, under short names.

Owns that list: where each is, about how large, its licence, how much of it is read for a token, how far its
memory goes back. Better ones come first, by published results for coding agents; we have not measured them.
Files, sizes and checksums come from the hub when one is pulled. Those that we pin are in `catalog`; which of
these suit a machine is worked out by `engine.tuning.recommend`.
"""

import msgspec

from vivace.models.catalog import Memory
from vivace.models.hub.names import HubName

FREE = ("Apache-2.0", "MIT")


class Curated(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    title: str
    hub: HubName
    size_bytes: int  # about
    licence: str
    context_tokens: int  # that it was trained for
    purpose: str
    active_share: float = 1.0  # of its bytes that are read for one token
    kv_token_bytes: int = 0  # about, of KV for one token; 0: not known
    memory: Memory = "exact"
    has_mtp: bool = False  # it was trained with a head that drafts its next tokens

    @property
    def is_free(self) -> bool:
        """Return whether its licence allows everything that open-source licences do."""
        return self.licence in FREE


CURATED: tuple[Curated, ...] = (
    Curated(
        name="qwen3.6-27b",
        title="Qwen3.6 27B, Q4_K_M",
        hub=HubName("unsloth/Qwen3.6-27B-GGUF", "Q4_K_M"),
        size_bytes=16_800_000_000,
        licence="Apache-2.0",
        context_tokens=262_144,
        purpose="tools and long tasks; the best that one GPU of 24 GB holds",
        kv_token_bytes=65_536,  # a quarter of 64 layers has attention
        memory="checkpoints",
        has_mtp=True,
    ),
    Curated(
        name="qwen3.6-35b-a3b",
        title="Qwen3.6 35B-A3B, Q4_K_M",
        hub=HubName("unsloth/Qwen3.6-35B-A3B-GGUF", "Q4_K_M"),
        size_bytes=22_100_000_000,
        licence="Apache-2.0",
        context_tokens=262_144,
        purpose="tools and long tasks; quick for its size, also on a CPU",
        active_share=0.11,  # 3 of 35 billion parameters, those always read in more bits
        kv_token_bytes=20_480,
        memory="checkpoints",
        has_mtp=True,
    ),
    Curated(
        name="qwen3-coder-next",
        title="Qwen3-Coder-Next 80B-A3B, Q4_K_M",
        hub=HubName("unsloth/Qwen3-Coder-Next-GGUF", "Q4_K_M"),
        size_bytes=48_500_000_000,
        licence="Apache-2.0",
        context_tokens=262_144,
        purpose="tools and long tasks; answers without reasoning first",
        active_share=0.05,  # 3 of 80 billion parameters
        kv_token_bytes=24_576,
        memory="checkpoints",
        has_mtp=True,
    ),
    Curated(
        name="minimax-m2.1",
        title="MiniMax M2.1 230B-A10B, Q3_K_M",
        hub=HubName("unsloth/MiniMax-M2.1-GGUF", "Q3_K_M"),
        size_bytes=109_000_000_000,
        licence="modified MIT",
        context_tokens=196_608,
        purpose="tools and long tasks, for the largest GPUs",
        active_share=0.05,  # 10 of 230 billion parameters
        kv_token_bytes=253_952,
    ),
    Curated(
        name="devstral-small-2",
        title="Devstral Small 2 24B, Q4_K_M",
        hub=HubName("unsloth/Devstral-Small-2-24B-Instruct-2512-GGUF", "Q4_K_M"),
        size_bytes=14_330_000_000,
        licence="Apache-2.0",
        context_tokens=262_144,
        purpose="tools and long tasks in repositories, without reasoning first",
        kv_token_bytes=163_840,
    ),
    Curated(
        name="gpt-oss-120b",
        title="gpt-oss 120B, MXFP4",
        hub=HubName("ggml-org/gpt-oss-120b-GGUF", "MXFP4"),
        size_bytes=63_400_000_000,
        licence="Apache-2.0",
        context_tokens=131_072,
        purpose="reasons before it answers, calls tools",
        active_share=0.06,  # 5.1 of 117 billion parameters, attention in 16 bits
        kv_token_bytes=73_728,
        memory="bounded",
    ),
    Curated(
        name="glm-4.7-flash",
        title="GLM-4.7-Flash 30B-A3B, Q4_K_M",
        hub=HubName("ggml-org/GLM-4.7-Flash-GGUF", "Q4_K_M"),
        size_bytes=18_300_000_000,
        licence="MIT",
        context_tokens=202_752,
        purpose="tools and long tasks; quick for its size",
        active_share=0.13,  # 3 of 30 billion parameters
        kv_token_bytes=54_144,
        has_mtp=True,
    ),
    Curated(
        name="gemma-4-31b",
        title="Gemma 4 31B, Q4_K_XL",
        hub=HubName("unsloth/gemma-4-31B-it-GGUF", "UD-Q4_K_XL"),
        size_bytes=18_800_000_000,
        licence="Apache-2.0",
        context_tokens=262_144,
        purpose="talk and code in many languages",
        memory="bounded",
    ),
    Curated(
        name="gemma-4-26b-a4b",
        title="Gemma 4 26B-A4B, Q4_K_M",
        hub=HubName("unsloth/gemma-4-26B-A4B-it-GGUF", "Q4_K_M"),
        size_bytes=16_900_000_000,
        licence="Apache-2.0",
        context_tokens=262_144,
        purpose="talk and code in many languages; quick for its size",
        active_share=0.18,  # 3.8 of 25.2 billion parameters
        memory="bounded",
    ),
    Curated(
        name="seed-oss-36b",
        title="Seed-OSS 36B Instruct, Q4_K_M",
        hub=HubName("unsloth/Seed-OSS-36B-Instruct-GGUF", "Q4_K_M"),
        size_bytes=21_800_000_000,
        licence="Apache-2.0",
        context_tokens=524_288,
        purpose="reasons within a budget, very long context",
        kv_token_bytes=262_144,
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
        kv_token_bytes=49_152,
        memory="bounded",
    ),
    Curated(
        name="nemotron-3-nano",
        title="Nemotron 3 Nano 30B-A3B, Q4_K_M",
        hub=HubName("bartowski/nvidia_Nemotron-3-Nano-30B-A3B-GGUF", "Q4_K_M"),
        size_bytes=24_600_000_000,
        licence="NVIDIA Open",
        context_tokens=1_048_576,
        purpose="reasons, calls tools, very long context",
        active_share=0.13,  # 3.5 of 31.6 billion parameters
        kv_token_bytes=6_144,
        memory="checkpoints",
    ),
    Curated(
        name="qwen3.5-9b",
        title="Qwen3.5 9B, Q4_K_M",
        hub=HubName("unsloth/Qwen3.5-9B-GGUF", "Q4_K_M"),
        size_bytes=5_700_000_000,
        licence="Apache-2.0",
        context_tokens=262_144,
        purpose="code, and tools in short tasks",
        kv_token_bytes=32_768,
        memory="checkpoints",
        has_mtp=True,
    ),
    Curated(
        name="qwen2.5-coder-7b",
        title="Qwen2.5-Coder 7B Instruct, Q4_K_M",
        hub=HubName("Qwen/Qwen2.5-Coder-7B-Instruct-GGUF", "Q4_K_M"),
        size_bytes=4_680_000_000,
        licence="Apache-2.0",
        context_tokens=32_768,
        purpose="edits, which drafts speed up",
        kv_token_bytes=57_344,
    ),
    Curated(
        name="qwen3.5-4b",
        title="Qwen3.5 4B, Q4_K_M",
        hub=HubName("unsloth/Qwen3.5-4B-GGUF", "Q4_K_M"),
        size_bytes=2_700_000_000,
        licence="Apache-2.0",
        context_tokens=262_144,
        purpose="code, and tools in short tasks",
        kv_token_bytes=32_768,
        memory="checkpoints",
        has_mtp=True,
    ),
    Curated(
        name="granite-4-h-tiny",
        title="Granite 4.0 H-Tiny 7B-A1B, Q4_K_M",
        hub=HubName("ibm-granite/granite-4.0-h-tiny-GGUF", "Q4_K_M"),
        size_bytes=4_200_000_000,
        licence="Apache-2.0",
        context_tokens=131_072,
        purpose="quick on a CPU; talk, tools and short code",
        active_share=0.2,  # 1 of 7 billion parameters
        kv_token_bytes=8_192,
        memory="checkpoints",
    ),
    Curated(
        name="qwen3.5-2b",
        title="Qwen3.5 2B, Q4_K_M",
        hub=HubName("unsloth/Qwen3.5-2B-GGUF", "Q4_K_M"),
        size_bytes=1_300_000_000,
        licence="Apache-2.0",
        context_tokens=262_144,
        purpose="small, with a long context",
        kv_token_bytes=12_288,
        memory="checkpoints",
        has_mtp=True,
    ),
    Curated(
        name="qwen3.5-0.8b",
        title="Qwen3.5 0.8B, Q4_K_M",
        hub=HubName("unsloth/Qwen3.5-0.8B-GGUF", "Q4_K_M"),
        size_bytes=530_000_000,
        licence="Apache-2.0",
        context_tokens=262_144,
        purpose="very small; completions and short questions",
        kv_token_bytes=12_288,
        memory="checkpoints",
        has_mtp=True,
    ),
)


def curated(name: str) -> Curated | None:
    """Return the recommended model of that name, or None."""
    return next((model for model in CURATED if model.name == name), None)
