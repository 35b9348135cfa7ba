"""A layer's experts and whatever can run their kernels: a test bed, poisoned before every launch."""

from dataclasses import replace
from typing import Any

import torch

from tests.engine.runners.cuda.bed import NAN
from tests.engine.runners.cuda.emulator import Emulator
from vivace.engine.runners.cuda.decode.experts import expert_plan
from vivace.engine.runners.cuda.decode.launches import Layer, Model, Routed, expert_launches, make_routed
from vivace.engine.runners.cuda.decode.plan import Plan
from vivace.engine.runners.cuda.kernels.driver import Module
from vivace.engine.runners.cuda.model import mixture, reference
from vivace.engine.runners.cuda.model.reference import StateDict
from vivace.engine.runners.cuda.model.shape import Shape
from vivace.engine.runners.cuda.weights.experts import pack_experts
from vivace.engine.runners.cuda.weights.layout import Matrix, gate_up_pairs, untile

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
BLOCKS = 132 if DEVICE == "cuda" else 10


def random_experts(shape: Shape, seed: int) -> StateDict:
    generator = torch.Generator().manual_seed(seed)

    def normal(*size: int) -> torch.Tensor:
        return (torch.randn(size, generator=generator) * size[-1] ** -0.5).to(torch.bfloat16)

    weights = StateDict({"layers.0.mlp.gate.weight": normal(shape.experts, shape.hidden) * 3})
    for expert in range(shape.experts):
        at = f"layers.0.mlp.experts.{expert}."
        for name in ("gate", "up"):
            weights[f"{at}{name}_proj.weight"] = normal(shape.expert_ffn, shape.hidden)
        weights[f"{at}down_proj.weight"] = normal(shape.hidden, shape.expert_ffn)
    return weights


class ExpertBed:
    """One layer's experts, and whatever can run their kernels."""

    def __init__(self, shape: Shape, bits: int, seed: int) -> None:
        self.shape, self.bits = shape, bits
        self.plain = random_experts(shape, seed)
        self.gain = (torch.rand(shape.hidden, generator=torch.Generator().manual_seed(seed)) + 0.5).to(DEVICE)
        self.packed = pack_experts(shape, self.plain, 0, bits, DEVICE)
        nothing = Matrix(torch.zeros(4096, device=DEVICE), torch.zeros(1, device=DEVICE))
        own = {"ffn_gain": self.gain, **self.packed._asdict()}
        self.layer = Layer(**{name: own.get(name, nothing) for name in Layer._fields})  # the rest is not read
        empty = torch.zeros(0, device=DEVICE)
        self.model = Model(shape, [self.layer], self.gain, nothing, empty, empty)
        self.scores = torch.empty(0)
        self.routed: Routed | None = None

    def run(self, x: torch.Tensor, tokens: int, **tuning: Any) -> torch.Tensor:
        """Return x after the experts, in a pass of `tokens`; those that x has not are padding."""
        plan = Plan(self.shape, self.bits, tokens, BLOCKS)
        plan = replace(plan, tuning=replace(plan.tuned, **tuning))
        rows = torch.full((tokens, self.shape.hidden), NAN, device=DEVICE)
        rows[: len(x)] = x
        count = torch.tensor([len(x)], dtype=torch.int32, device=DEVICE)
        self.scores = torch.full((tokens, self.shape.experts), NAN, device=DEVICE)
        chosen = self.shape.experts_per_token * self.shape.expert_ffn
        h = torch.full((tokens, chosen), NAN, device=DEVICE)
        launcher = (Module if DEVICE == "cuda" else Emulator)(expert_plan(plan))
        routed = make_routed(self.shape, tokens, DEVICE)
        for each in routed:
            each.fill_(-1 if each.dtype == torch.int32 else NAN)
        self.routed = routed
        for launch in expert_launches(
            plan, self.layer, self.model, count=count, x=rows, scores=self.scores, h=h, routed=routed
        ):
            launcher.run(launch)
        assert rows[len(x) :].isnan().all()  # padding is left alone
        return rows[: len(x)].cpu()

    def rounded(self) -> StateDict:
        """The experts as they were rounded, rows in their own order."""
        found = StateDict({"gate.weight": self.packed.router.cpu()})
        shape = self.shape
        order = gate_up_pairs(shape.expert_ffn)
        both = _each(self.packed.gate_up, shape.experts, shape.hidden)
        down = _each(self.packed.down, shape.experts, shape.expert_ffn)
        for expert in range(shape.experts):
            rows = torch.empty_like(both[expert]).index_copy_(0, order, both[expert])
            gate, up = rows.chunk(2)
            for name, matrix in (("gate", gate), ("up", up), ("down", down[expert])):
                found[f"experts.{expert}.{name}_proj.weight"] = matrix
        return found

    def wanted(self, x: torch.Tensor) -> torch.Tensor:
        y = reference.norm(x, self.gain.cpu(), self.shape.norm_epsilon)
        return x + mixture.mix_experts(self.rounded(), "", y, self.shape.experts_per_token)


def _each(matrix: Matrix, experts: int, columns: int) -> torch.Tensor:
    rows = untile(Matrix(matrix.tiles.cpu(), matrix.scales.cpu()), columns)
    return rows.reshape(experts, -1, columns)


def some_x(shape: Shape, tokens: int, seed: int) -> torch.Tensor:
    return torch.randn(tokens, shape.hidden, generator=torch.Generator().manual_seed(seed + 1))
