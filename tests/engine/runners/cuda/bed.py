"""A test bed: one small model, its buffers and whatever can run its kernels, poisoned before every launch."""

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

import torch

from tests.engine.runners.cuda.emulator import Emulator
from vivace.engine.runners.cuda.decode import launches
from vivace.engine.runners.cuda.decode.launch import Launch
from vivace.engine.runners.cuda.decode.launches import Model
from vivace.engine.runners.cuda.decode.plan import Plan
from vivace.engine.runners.cuda.decode.tuning import near_tuning
from vivace.engine.runners.cuda.kernels.driver import Module
from vivace.engine.runners.cuda.kv.pool import make_pool, pack_rows, read_pages, split_page
from vivace.engine.runners.cuda.model.reference import StateDict
from vivace.engine.runners.cuda.model.shape import Shape
from vivace.engine.runners.cuda.weights import layout
from vivace.engine.runners.cuda.weights.build import Dense, build_model, random_weights

NAN = float("nan")
PAGES = 20


@lru_cache(maxsize=2)
def make_weights(shape: Shape, bits: int, seed: int, device: str) -> tuple[StateDict, Model, list[Dense]]:
    """Return random weights, as they are and as the kernels read them. Passes of several sizes share them."""
    plain = random_weights(shape, seed, device)
    return (plain, *build_model(shape, plain, bits, device, PAGES * 64))


class Bed:
    def __init__(
        self,
        shape: Shape,
        bits: int,
        tokens: int,
        seed: int,
        *,
        parts: int = 2,
        kv_bits: int = 16,
        tuning: dict[str, int] | None = None,  # what is other than by default
        is_near: bool = False,  # the plan for short contexts
    ) -> None:
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        few = 37 if is_near else 5  # the clusters of two key heads take 32
        blocks = torch.cuda.get_device_properties(0).multi_processor_count if self.device == "cuda" else few
        torch.manual_seed(seed)
        self.shape, self.bits, self.tokens, self.parts = shape, bits, tokens, parts
        self.plan = Plan(shape, bits, tokens, blocks, kv_bits=kv_bits)
        if tuning:
            self.plan = replace(self.plan, tuning=replace(self.plan.tuned, **tuning))  # type: ignore[arg-type]
        if is_near:
            self.plan = replace(self.plan, tuning=near_tuning(self.plan.tuned))
        self.plain, self.model, self.dense = make_weights(shape, bits, seed, self.device)
        kv = make_pool(shape, PAGES, kv_bits, self.device)
        kv.view(torch.uint8).fill_(255)  # not a number in bf16, nor as a scale
        ring = torch.zeros(launches.RING_WORDS, dtype=torch.int64)
        if self.device == "cuda":
            ring = ring.pin_memory()
        self.buffers = launches.make_buffers(self.plan, kv, PAGES, ring)
        self.buffers.pages.copy_(torch.randperm(PAGES).int())
        launcher = Module(self.plan) if self.device == "cuda" else Emulator(self.plan)
        self.run_launch: Callable[[Launch], None] = launcher.run

    def poison(self) -> None:
        b = self.buffers
        for tensor in (b.x, b.q, b.part, b.part_stats, b.h, b.logits, b.best_score):
            tensor.fill_(NAN)
        b.h[:, self.shape.ffn :] = 0.0  # padding, which nobody writes

    def at(self, position: int, count: int) -> None:
        state = torch.zeros(launches.STATE_WORDS, dtype=torch.int32)
        state[launches.POSITION], state[launches.COUNT] = position, count
        self.buffers.state.copy_(state)

    def launch(self, kernel: str) -> None:
        """One kernel of layer 0, or of the end of a pass."""
        model, b = self.model, self.buffers
        passes = launches.pass_launches(self.plan, model, b, parts=self.parts, streams=False)
        self.run_launch(next(each for each in passes if each.kernel == kernel))
        self.finish()

    def run_pass(self, tokens: list[int], position: int) -> torch.Tensor:
        self.poison()
        self.at(position, len(tokens))
        self.buffers.tokens.zero_()
        self.buffers.tokens[: len(tokens)] = torch.tensor(tokens, dtype=torch.int32)
        for each in launches.pass_launches(
            self.plan, self.model, self.buffers, parts=self.parts, streams=False
        ):
            self.run_launch(each)
        self.finish()
        return self.buffers.logits[: len(tokens)].clone()

    def combine_parts(self) -> torch.Tensor:
        """The attention of all parts, weighed by what each says of itself; the only one says nothing."""
        parts = launches.parts_of(self.model.layers[0], self.parts)
        if parts == 1:
            return self.buffers.part[0]
        stats, part = self.buffers.part_stats[:parts], self.buffers.part[:parts]
        weight = stats[..., 1] * torch.exp2(stats[..., 0] - stats[..., 0].amax(0))
        return (part * (weight / weight.sum(0))[..., None]).sum(0)

    def finish(self) -> None:
        if self.device == "cuda":
            torch.cuda.synchronize()

    def rows(self, matrix: layout.Matrix, columns: int, order: torch.Tensor | None = None) -> torch.Tensor:
        """The matrix that a kernel multiplies by, rounded as it is, rows in the model's own order."""
        rows = layout.untile(matrix, columns)
        if order is None:
            return rows
        out = torch.empty_like(rows)
        out[order.to(rows.device)] = rows
        return out

    def kv_rows(self, is_value: int, length: int) -> torch.Tensor:
        """[length, kv_heads, 128] of layer 0, as the pages hold them."""
        pages = self.buffers.pages.long()[: (length + 63) // 64]
        found = read_pages(self.buffers.kv[0][pages][:, is_value])  # [pages, kv_heads, 64, 128]
        return found.transpose(1, 2).reshape(-1, self.shape.kv_heads, 128)[:length].float()

    def fill_kv(self, length: int) -> None:
        """Random keys and values at positions 0 … length-1 of layer 0; the rest stays poisoned."""
        for position in range(length):
            page, slot = self.buffers.kv[0, self.buffers.pages[position // 64]], position % 64
            rows = torch.randn(2, self.shape.kv_heads, 128, device=self.device)
            write_row(page, slot, rows)


def write_row(page: torch.Tensor, slot: int, rows: torch.Tensor) -> None:
    """Keys and values of one token [2, kv_heads, 128] into a page, in the format of the page."""
    if page.dtype == torch.bfloat16:
        page[:, :, slot] = rows.to(torch.bfloat16)
        return
    packed, scales = split_page(page)
    packed[:, :, slot], scales[:, :, slot] = pack_rows(rows)


def distance(found: torch.Tensor, wanted: torch.Tensor) -> float:
    """‖found − wanted‖ / ‖wanted‖; not a number if any element was not written."""
    return float((found.float() - wanted.float()).norm() / wanted.float().norm())
