"""What a decoder is, in numbers. Owns the shape of Qwen2-like models; knows nothing of tensors."""

from dataclasses import dataclass

HEAD_DIM = 128
PAGE_TOKENS = 64  # of the KV; the kernels have the same number
SCALE_BYTES = 16  # beside each head's row of a KV in 8 bits


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

    @property
    def qkv_rows(self) -> int:
        return (self.heads + 2 * self.kv_heads) * HEAD_DIM

    def kv_bytes_per_token(self, kv_bits: int = 16) -> int:
        row = HEAD_DIM * 2 if kv_bits == 16 else HEAD_DIM + SCALE_BYTES
        return self.layers * 2 * self.kv_heads * row

    @property
    def parameters(self) -> int:
        layer = self.qkv_rows + self.heads * HEAD_DIM + 3 * self.ffn
        return self.layers * layer * self.hidden + 2 * self.vocab * self.hidden

    def problem(self) -> str:
        """Return why our kernels cannot run this model, or an empty string if they can."""
        if self.hidden % 512:
            return f"its width of {self.hidden} is no multiple of 512"
        if self.heads * HEAD_DIM % 512:
            return f"its {self.heads} heads of {HEAD_DIM} are no multiple of 512"
        if self.ffn % 64:
            return f"its inner width of {self.ffn} is no multiple of 64"
        if self.heads % self.kv_heads:
            return f"its {self.heads} heads do not share {self.kv_heads} key heads evenly"
        return ""


QWEN_CODER_1_5B = Shape(28, 1536, 8960, 12, 2, 151936, 32768)
