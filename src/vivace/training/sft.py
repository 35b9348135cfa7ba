"""Supervised fine-tuning of an adapter: steps over packed examples, that stop and go on where they were.

Owns the order of examples, the optimiser, the rate, the log and the state on disk. The same plan, data and
seed give the same steps; a run that was stopped goes on from its state with the same ones. Does not own the
loss, nor what is measured in between (a `Hook`).
"""

import hashlib
import json
import math
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch  # type: ignore[import-not-found,unused-ignore]

from vivace.errors import UsageError
from vivace.training.adapter import Adapter, new_adapter, save_adapter
from vivace.training.decoder import Decoder
from vivace.training.examples import Examples
from vivace.training.loss import Losses, backward
from vivace.training.packing import collate, pack

STATE, LOG, ADAPTER = "state.pt", "log.jsonl", "adapter.safetensors"
LEAST_RATE = 0.05  # of the highest, at the end

Hook = Callable[[int, Adapter], dict[str, Any]]  # step → figures for the log
Say = Callable[[str], None]


@dataclass(frozen=True)
class SftPlan:
    rank: int = 16
    alpha: float = 32.0
    learning_rate: float = 1e-4
    kl_weight: float = 0.05
    copied_weight: float = 1.0  # of tokens that repeat the old unit; 1: like the others
    epochs: int = 1
    row_tokens: int = 4096
    rows_at_once: int = 4  # that are in memory
    rows_per_step: int = 8
    warmup: float = 0.05  # share of the steps
    seed: int = 1
    measure_every: int = 0  # steps; 0: at the end alone

    def rate(self, step: int, steps: int) -> float:
        """Return the learning rate: up, then down as a cosine."""
        warm = max(1, round(self.warmup * steps))
        if step < warm:
            return self.learning_rate * (step + 1) / warm
        fallen = 0.5 * (1 + math.cos(math.pi * (step - warm) / max(1, steps - warm)))
        return self.learning_rate * (LEAST_RATE + (1 - LEAST_RATE) * fallen)


class Training:
    """One run, in a folder of its own."""

    def __init__(
        self, decoder: Decoder, examples: Examples, plan: SftPlan, folder: Path, say: Say = print
    ) -> None:
        self.decoder, self.examples, self.plan, self.folder, self._say = decoder, examples, plan, folder, say
        folder.mkdir(parents=True, exist_ok=True)
        self.steps = steps_of(examples, plan)
        self.step = 0
        self.adapter = new_adapter(
            decoder.shape, decoder.weights, plan.rank, plan.alpha, plan.seed, decoder.device
        )
        self._optimizer = torch.optim.AdamW(
            self.adapter.parameters, lr=plan.learning_rate, betas=(0.9, 0.99), weight_decay=0.0
        )
        self._identity = _identity(examples, plan)
        if (folder / STATE).exists():
            self._resume()

    @property
    def is_done(self) -> bool:
        return self.step >= len(self.steps)

    def run(self, seconds: float = math.inf, hook: Hook | None = None) -> Adapter:
        """Train to the end, or at least one step and while there is time; leave what is done on disk."""
        begun, longest = time.monotonic(), 0.0
        while not self.is_done and (not longest or time.monotonic() - begun + longest < seconds):
            at = time.monotonic()
            figures = self._one_step()
            longest = max(longest, time.monotonic() - at)
            every = self.plan.measure_every
            if hook is not None and (self.is_done or (every and self.step % every == 0)):
                figures |= hook(self.step, self.adapter)
            self._log(figures)
        self.save()
        return self.adapter

    def save(self) -> None:
        """Write the state from which this run goes on, then the adapter as it is."""
        state = {
            "identity": self._identity,
            "step": self.step,
            "pairs": {
                name: [each.detach().cpu() for each in pair] for name, pair in self.adapter.pairs.items()
            },
            "optimizer": self._optimizer.state_dict(),
        }
        part = self.folder / f"{STATE}.part"
        torch.save(state, part)
        part.rename(self.folder / STATE)
        save_adapter(self.adapter, self.folder / ADAPTER)

    def _resume(self) -> None:
        state = torch.load(self.folder / STATE, weights_only=True, map_location="cpu")
        if state["identity"] != self._identity:
            raise UsageError(
                f"{self.folder} holds a run with another plan or other data.",
                "Name another folder, or remove this one.",
            )
        self.step = state["step"]
        with torch.no_grad():
            for name, pair in self.adapter.pairs.items():
                for mine, kept in zip(pair, state["pairs"][name], strict=True):
                    mine.copy_(kept)
        self._optimizer.load_state_dict(state["optimizer"])
        self._say(f"goes on at step {self.step} of {len(self.steps)}")

    def _one_step(self) -> dict[str, Any]:
        plan, begun = self.plan, time.monotonic()
        rows = self.steps[self.step]
        count = sum(len(self.examples.rows[index].answer) for row in rows for index in row)
        weight = sum(self._weight(index) for row in rows for index in row)
        rate = plan.rate(self.step, len(self.steps))
        for group in self._optimizer.param_groups:
            group["lr"] = rate
        sums, tokens = Losses(torch.zeros(()), torch.zeros(())), 0
        for start in range(0, len(rows), plan.rows_at_once):
            part = rows[start : start + plan.rows_at_once]
            batch = collate(self.examples.prefix, self.examples.rows, part)
            tokens += batch.tokens.numel()
            found = backward(
                *(self.decoder, self.adapter, batch.to(self.decoder.device), plan.kl_weight, count),
                *(plan.copied_weight, weight),
            )
            sums = Losses(*(total + each.cpu() for total, each in zip(sums, found, strict=True)))
        norm = torch.nn.utils.clip_grad_norm_(self.adapter.parameters, 1.0)
        is_finite = bool(torch.isfinite(norm))
        if is_finite:  # one step without a gradient is better than an adapter of NaN
            self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        self.step += 1
        return {
            "step": self.step,
            "loss": round(float(sums.nats) / count, 5),
            "kl": round(float(sums.kl) / count, 5),
            "gradient": round(float(norm), 4),
            **({} if is_finite else {"is_left_out": True}),
            "rate": rate,
            "targets": count,
            "tokens_per_s": round(tokens / (time.monotonic() - begun)),
        }

    def _weight(self, index: int) -> float:
        row = self.examples.rows[index]
        changed = sum(row.changed) if row.changed else len(row.answer)
        return changed + self.plan.copied_weight * (len(row.answer) - changed)

    def _log(self, figures: dict[str, Any]) -> None:
        with (self.folder / LOG).open("a") as file:
            file.write(json.dumps(figures) + "\n")
        if self.step % 10 == 0 or self.is_done or self.step == 1:
            self._say(f"of {len(self.steps)}: {json.dumps(figures)}")


def steps_of(examples: Examples, plan: SftPlan) -> list[list[list[int]]]:
    """Return for each step its rows of examples, by index. The same seed, the same steps."""
    chance = random.Random(plan.seed)
    lengths = [len(row) for row in examples.rows]
    room = plan.row_tokens - len(examples.prefix)
    steps: list[list[list[int]]] = []
    for _ in range(plan.epochs):
        rows = pack(lengths, room, chance)
        steps += [rows[at : at + plan.rows_per_step] for at in range(0, len(rows), plan.rows_per_step)]
    return steps


def _identity(examples: Examples, plan: SftPlan) -> str:
    """Return what a state belongs to: the plan, and the data in its order."""
    names: Sequence[str] = [f"{row.name} {len(row)}" for row in examples.rows]
    told = json.dumps([asdict(plan), len(examples.prefix), names])
    return hashlib.sha256(told.encode()).hexdigest()
