"""gpt-oss's weights as the kernels read them: experts in MXFP4, from the hub's bytes or a GGUF's.

Owns how MXFP4 lies in both files and in a tile (kernels/mxfp4.cuh has the same), the order of the experts'
rows, and random weights. Files are `oss_files`'.
"""

from typing import NamedTuple

import torch  # type: ignore[import-not-found,unused-ignore]

from vivace.engine.runners.cuda.decode.launches import OssLayer
from vivace.engine.runners.cuda.model.oss import GROUP, widen_mxfp4
from vivace.engine.runners.cuda.model.reference import StateDict
from vivace.engine.runners.cuda.model.shape import Shape
from vivace.engine.runners.cuda.weights.experts import Experts
from vivace.engine.runners.cuda.weights.layout import TILE_ROWS, Matrix, gate_up_pairs
from vivace.engine.runners.cuda.weights.pieces import Weights

BLOCK_BYTES = 17  # of a GGUF: a scale, then 32 numbers, the first 16 in the low halves
_OF_EXPERTS = (  # the hub's, and a GGUF's: of these a file has one kind
    *("gate_up_proj_blocks", "gate_up_proj_scales", "gate_up_proj_bias"),
    *("gate_raw", "up_raw", "gate_bias", "up_bias"),
    *("down_proj_blocks", "down_proj_scales", "down_proj_bias", "down_raw", "down_bias"),
)
# What `pack_oss` asks for, in order.
LAYER_NAMES = (
    *("self_attn.o_proj.bias", "self_attn.sinks", "mlp.router.weight", "mlp.router.bias"),
    *(f"mlp.experts.{name}" for name in _OF_EXPERTS),
)


class Mxfp4(NamedTuple):
    """One matrix of all experts, as the hub has it."""

    blocks: torch.Tensor  # [experts, rows, groups, 16]: two neighbours a byte
    scales: torch.Tensor  # [experts, rows, groups]
    bias: torch.Tensor  # [experts, rows]


def oss_experts(shape: Shape, weights: Weights, index: int) -> tuple[Mxfp4, Mxfp4]:
    """Return gate and up, whose rows take turns, and down."""
    at, experts = f"layers.{index}.mlp.experts.", shape.experts

    def take(name: str, *size: int) -> torch.Tensor:
        return weights.rows(at + name).reshape(experts, *size)

    def matrix(name: str, rows: int, columns: int) -> Mxfp4:
        groups = columns // GROUP
        return Mxfp4(
            take(f"{name}_blocks", rows, groups, GROUP // 2),
            take(f"{name}_scales", rows, groups),
            take(f"{name}_bias", rows),
        )

    def raw(name: str, rows: int, columns: int) -> tuple[torch.Tensor, torch.Tensor]:
        bytes_ = take(f"{name}_raw", rows, columns // GROUP, BLOCK_BYTES)
        numbers = torch.cat([bytes_[..., 1:] & 15, bytes_[..., 1:] >> 4], dim=-1)
        return numbers[..., ::2] | numbers[..., 1::2] << 4, bytes_[..., 0]

    hidden, ffn = shape.hidden, shape.expert_ffn
    if f"{at}gate_up_proj_blocks" in weights:
        return matrix("gate_up_proj", 2 * ffn, hidden), matrix("down_proj", hidden, ffn)
    gate, up = raw("gate", ffn, hidden), raw("up", ffn, hidden)
    both = ((*gate, take("gate_bias", ffn)), (*up, take("up_bias", ffn)))
    turns = (torch.stack(each, dim=2).flatten(1, 2) for each in zip(*both, strict=True))
    return Mxfp4(*turns), Mxfp4(*raw("down", hidden, ffn), take("down_bias", hidden))


def tile_mxfp4(blocks: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """Return matrices [… , rows, groups, 16] as [tile][64 columns]: [row][4][2 groups][4 bytes], [2][row].

    A byte has two neighbours already, so four bytes are the eight columns of a lane.
    """
    pairs = blocks.shape[-2] // 2
    lanes = blocks.reshape(-1, TILE_ROWS, pairs, 2, 4, 4).permute(0, 2, 1, 4, 3, 5).flatten(2)
    behind = scales.reshape(-1, TILE_ROWS, pairs, 2).permute(0, 2, 3, 1).flatten(2)
    return torch.cat([lanes, behind], dim=-1).reshape(-1)


def untile_mxfp4(tiles: torch.Tensor, columns: int) -> torch.Tensor:
    """Return the matrix that the kernels multiply by: rows of fp32, in the order of the tiles."""
    pairs, digits = columns // (2 * GROUP), TILE_ROWS * GROUP
    blocks = tiles.reshape(-1, pairs, digits + 2 * TILE_ROWS)
    lanes = blocks[..., :digits].reshape(-1, pairs, TILE_ROWS, 4, 2, 4).permute(0, 2, 1, 4, 3, 5)
    scales = blocks[..., digits:].reshape(-1, pairs, 2, TILE_ROWS).permute(0, 3, 1, 2)
    return widen_mxfp4(lanes.reshape(-1, 2 * pairs, 16), scales.reshape(-1, 2 * pairs))


def pack_oss(
    shape: Shape, weights: Weights, index: int, out_bias: torch.Tensor | None, device: torch.device | str
) -> tuple[Experts, OssLayer]:
    """Pack a layer's experts, and what else gpt-oss has in a layer."""
    at = f"layers.{index}."

    def take(name: str) -> torch.Tensor:
        return weights.rows(at + name).to(device)

    # Rows of gate and up take turns: gate first, then up; then as they meet in tiles.
    apart = torch.arange(2 * shape.expert_ffn).reshape(-1, 2).T.reshape(-1)
    order = apart[gate_up_pairs(shape.expert_ffn)].to(device)
    none = torch.ones(1, device=device)  # MXFP4 has no scales of rows
    assert out_bias is not None
    sinks, router = take("self_attn.sinks"), take("mlp.router.weight").to(torch.bfloat16).contiguous()
    router_bias = take("mlp.router.bias")
    up, down = (Mxfp4(*(each.to(device) for each in matrix)) for matrix in oss_experts(shape, weights, index))
    experts = Experts(
        router,
        Matrix(tile_mxfp4(up.blocks[:, order], up.scales[:, order]), none),
        Matrix(tile_mxfp4(down.blocks, down.scales), none),
    )
    return experts, OssLayer(
        window=shape.window_of(index),
        sinks=sinks.float().contiguous(),
        out_bias=out_bias.float().contiguous(),
        router_bias=router_bias.float().contiguous(),
        up_bias=up.bias[:, order].float().contiguous(),
        down_bias=down.bias.float().contiguous(),
        plain_up_bias=up.bias[:, apart.to(device)].float().contiguous(),
    )


def random_oss_weights(shape: Shape, seed: int, device: torch.device | str = "cpu") -> StateDict:
    """Return random weights with the magnitudes of a real model, for timing and for tests."""
    generator = torch.Generator(device=device).manual_seed(seed)

    def normal(*size: int, scale: float) -> torch.Tensor:
        return (torch.randn(size, generator=generator, device=device) * scale).to(torch.bfloat16)

    def byte(*size: int, low: int, high: int) -> torch.Tensor:
        return torch.randint(low, high, size, generator=generator, device=device, dtype=torch.uint8)

    def mxfp4(name: str, rows: int, columns: int) -> dict[str, torch.Tensor]:
        # A number is 2.6 on average (its square 7.4): with scales around 2^-n rows are about 1 long.
        middle = 127 - round(torch.tensor(2.7 * columns**0.5).log2().item())
        return {
            f"{name}_blocks": byte(shape.experts, rows, columns // GROUP, 16, low=0, high=256),
            f"{name}_scales": byte(shape.experts, rows, columns // GROUP, low=middle - 1, high=middle + 2),
            f"{name}_bias": normal(shape.experts, rows, scale=0.3),
        }

    hidden, ffn, width = shape.hidden, shape.expert_ffn, shape.head_width
    rows = {"q": shape.heads * width, "k": shape.kv_heads * width, "v": shape.kv_heads * width}
    weights = StateDict({"embed_tokens.weight": normal(shape.vocab, hidden, scale=0.5)})
    weights["norm.weight"] = normal(hidden, scale=0.2) + 1
    weights["lm_head.weight"] = normal(shape.vocab, hidden, scale=0.5)
    for index in range(shape.layers):
        at = f"layers.{index}."
        for name, size in rows.items():
            weights[f"{at}self_attn.{name}_proj.weight"] = normal(size, hidden, scale=hidden**-0.5)
            weights[f"{at}self_attn.{name}_proj.bias"] = normal(size, scale=0.3)
        weights[at + "self_attn.o_proj.weight"] = normal(hidden, rows["q"], scale=rows["q"] ** -0.5)
        weights[at + "self_attn.o_proj.bias"] = normal(hidden, scale=0.3)
        weights[at + "self_attn.sinks"] = normal(shape.heads, scale=2.0)
        weights[at + "mlp.router.weight"] = normal(shape.experts, hidden, scale=2 * hidden**-0.5)
        weights[at + "mlp.router.bias"] = normal(shape.experts, scale=0.3)
        weights |= mxfp4(at + "mlp.experts.gate_up_proj", 2 * ffn, hidden)
        weights |= mxfp4(at + "mlp.experts.down_proj", hidden, ffn)
        for name in ("input_layernorm", "post_attention_layernorm"):
            weights[f"{at}{name}.weight"] = normal(hidden, scale=0.2) + 1
    return weights
