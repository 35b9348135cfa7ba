"""What a decoder is, in numbers: sizes, and what one family has and another has not.

Owns the shape of Qwen2, Qwen3, Llama-like models and gpt-oss, and those whose shape is known by name. Knows
nothing of tensors.
"""

from dataclasses import dataclass
from typing import Any

HEAD_DIM = 128  # of a head's row in q and in the KV; a narrower head has zeros behind each half
PAGE_TOKENS = 64  # of the KV; the kernels have the same number
SCALE_BYTES = 16  # beside each head's row of a KV in 8 bits


@dataclass(frozen=True)
class GptOss:
    """What gpt-oss has besides a mixture: windows, a clamped SwiGLU, YaRN from its training on.

    Its attention has a sink for each head and a bias behind every product, as have router and experts, whose
    weights are in MXFP4.
    """

    window: int  # positions that every second layer sees, the first layer among them
    yarn_factor: float
    yarn_tokens: int  # that positions were trained for before they were stretched
    limit: float = 7.0  # of gate and up
    slope: float = 1.702  # of the sigmoid


@dataclass(frozen=True)
class Shape:
    layers: int
    hidden: int
    ffn: int
    heads: int
    kv_heads: int
    vocab: int
    trained_tokens: int
    rope_theta: float = 1e6
    norm_epsilon: float = 1e-6
    qkv_bias: bool = True  # Qwen2 has, Qwen3 and Llama have not
    qk_norm: bool = False  # of each head of q and k, before rotation: Qwen3
    tied_head: bool = True  # whether the head is the embedding
    experts: int = 0  # of a layer; 0: one feed-forward network. `ffn` is what all that a token has are wide
    experts_per_token: int = 0
    expert_ffn: int = 0
    head_width: int = HEAD_DIM  # 128, or 64
    oss: GptOss | None = None

    @property
    def qkv_rows(self) -> int:
        return (self.heads + 2 * self.kv_heads) * self.head_width

    @property
    def attention_width(self) -> int:
        """Return the columns of the out projection. Qwen3's are not its hidden width."""
        return self.heads * self.head_width

    @property
    def score_scale(self) -> float:
        return float(self.head_width**-0.5)

    def window_of(self, layer: int) -> int:
        """Return how many positions a layer sees, its own among them; 0: all."""
        return self.oss.window if self.oss and layer % 2 == 0 else 0

    @property
    def hidden_warps(self) -> int:
        """Return the warps that share the hidden width: 64 columns at a time, evenly."""
        return 9 if self.oss else 8

    @property
    def is_dense(self) -> bool:
        return not self.experts

    def kv_bytes_per_token(self, kv_bits: int = 16) -> int:
        row = HEAD_DIM * 2 if kv_bits == 16 else HEAD_DIM + SCALE_BYTES
        return self.layers * 2 * self.kv_heads * row

    @property
    def parameters(self) -> int:
        inner = 3 * self.ffn if self.is_dense else self.experts * (3 * self.expert_ffn + 1)
        layer = self.qkv_rows + self.attention_width + inner
        return self.layers * layer * self.hidden + 2 * self.vocab * self.hidden

    @property
    def expert_parameters(self) -> int:
        """Return the weights of all experts, which stay packed: no copy of them is in bf16."""
        return self.layers * self.experts * 3 * self.expert_ffn * self.hidden

    def problem(self) -> str:
        """Return why our kernels cannot run this model, or an empty string if they can."""
        if self.hidden % (64 * self.hidden_warps):
            return f"its width of {self.hidden} is no multiple of {64 * self.hidden_warps}"
        if self.head_width not in (64, HEAD_DIM):
            return f"its heads are {self.head_width} wide, and not 64 or {HEAD_DIM}"
        if self.attention_width % 512:
            return f"its {self.heads} heads of {self.head_width} are no multiple of 512"
        if self.ffn % 64:
            return f"its inner width of {self.ffn} is no multiple of 64"
        if self.heads % self.kv_heads:
            return f"its {self.heads} heads do not share {self.kv_heads} key heads evenly"
        if self.experts:
            return self._problem_of_experts()
        return ""

    def _problem_of_experts(self) -> str:
        if self.experts % 8:
            return f"its {self.experts} experts are no multiple of 8"
        if self.experts_per_token not in (4, 8, 16):
            return f"each token has {self.experts_per_token} experts, and not 4, 8 or 16"
        if self.expert_ffn % 64:
            return f"its experts' inner width of {self.expert_ffn} is no multiple of 64"
        return ""


QWEN_CODER_1_5B = Shape(28, 1536, 8960, 12, 2, 151936, 32768)
_UNTIED: dict[str, Any] = {"tied_head": False}
_QWEN3: dict[str, Any] = {"qkv_bias": False, "qk_norm": True}
KNOWN_SHAPES = {
    "qwen2.5-coder-1.5b": QWEN_CODER_1_5B,
    "qwen2.5-coder-3b": Shape(36, 2048, 11008, 16, 2, 151936, 32768),
    "qwen2.5-coder-7b": Shape(28, 3584, 18944, 28, 4, 152064, 32768, **_UNTIED),
    "qwen2.5-coder-14b": Shape(48, 5120, 13824, 40, 8, 152064, 32768, **_UNTIED),
    "qwen2.5-coder-32b": Shape(64, 5120, 27648, 40, 8, 152064, 32768, **_UNTIED),
    "qwen3-0.6b": Shape(28, 1024, 3072, 16, 8, 151936, 40960, **_QWEN3),
    "qwen3-1.7b": Shape(28, 2048, 6144, 16, 8, 151936, 40960, **_QWEN3),
    "qwen3-4b": Shape(36, 2560, 9728, 32, 8, 151936, 40960, **_QWEN3),
    "qwen3-8b": Shape(36, 4096, 12288, 32, 8, 151936, 40960, **_QWEN3, **_UNTIED),
    "qwen3-14b": Shape(40, 5120, 17408, 40, 8, 151936, 40960, **_QWEN3, **_UNTIED),
    "qwen3-32b": Shape(64, 5120, 25600, 64, 8, 151936, 40960, **_QWEN3, **_UNTIED),
    "qwen3-coder-30b-a3b": Shape(
        *(48, 2048, 6144, 32, 4, 151936, 262144, 1e7),
        *(1e-6, False, True, False),
        experts=128,
        experts_per_token=8,
        expert_ffn=768,
    ),
    "gpt-oss-20b": Shape(
        *(24, 2880, 4 * 2880, 64, 8, 201088, 131072, 150_000.0, 1e-5),
        **_UNTIED,
        experts=32,
        experts_per_token=4,
        expert_ffn=2880,
        head_width=64,
        oss=GptOss(window=128, yarn_factor=32.0, yarn_tokens=4096),
    ),
}
