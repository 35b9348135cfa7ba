"""Tokens to answers, on a GPU with transformers: the first answer, samples, and branches of the first.

Owns the batched writing. Does not know which answers are right (`judging`).
"""

import random
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from candidates.tasks import Found, Plan, Planned

ROWS = 900  # answers that are written at once


class Job:
    """One answer to be written."""

    def __init__(self, task: Planned, prompt: str, how: str, heat: float, begun: Sequence[int] = ()) -> None:
        self.task, self.prompt, self.how, self.heat = task, prompt, how, heat
        self.begun, self.said = list(begun), list[int]()
        self.nats = 0.0
        self.is_whole = False
        self.tops: list[tuple[list[int], list[float]]] = []  # of each place, if it is greedy

    @property
    def tokens(self) -> list[int]:
        return self.task.prompts[self.prompt] + self.begun

    @property
    def room(self) -> int:
        return self.task.max_tokens - len(self.begun)

    def add(self, token: int, nats: float, *, is_over: bool) -> bool:
        """Add a token; return whether the answer goes on."""
        self.said.append(token)
        self.nats += nats
        self.is_whole = is_over
        return not is_over and len(self.said) < self.room


class Writer:
    """Writes many answers at once with transformers: left-padded, rows dropped as they end."""

    def __init__(self, model: Any, ends: Any) -> None:
        import torch

        self.model, self.ends, self.torch, self.device = model, ends, torch, model.device

    def write(self, jobs: Sequence[Job]) -> None:
        ordered = sorted(jobs, key=lambda job: (len(job.tokens), job.room))
        for begin in range(0, len(ordered), ROWS):
            with self.torch.inference_mode():
                self._write(ordered[begin : begin + ROWS])

    def _write(self, jobs: list[Job]) -> None:
        from transformers import DynamicCache  # type: ignore[import-not-found,unused-ignore]

        torch = self.torch
        ids, mask = self._padded([job.tokens for job in jobs])
        at = (mask.cumsum(-1) - 1).clamp(min=0)
        cache, live = DynamicCache(), dict(enumerate(jobs))
        heat = torch.tensor([job.heat for job in jobs], device=self.device)[:, None]
        out = self.model(
            ids, attention_mask=mask, position_ids=at, past_key_values=cache, use_cache=True, logits_to_keep=1
        )
        at = at[:, -1:]
        while True:
            logits = out.logits[:, -1].float()
            chances = logits.log_softmax(-1)
            noise = -torch.empty_like(logits).exponential_().log()
            chosen = torch.where(heat > 0, logits / heat.clamp(min=0.01) + noise, logits).argmax(-1)
            self._add(live, chosen, chances)
            if len(live) <= len(jobs) // 200:  # the last few would cost as much as all others
                return
            if len(live) < 0.7 * len(chosen):
                index = torch.tensor(list(live), device=self.device)
                cache.batch_select_indices(index)
                mask, at, chosen, heat = mask[index], at[index], chosen[index], heat[index]
                live = dict(enumerate(live.values()))
            mask = torch.cat([mask, torch.ones_like(mask[:, :1])], 1)
            at = at + 1
            out = self.model(
                chosen[:, None], attention_mask=mask, position_ids=at, past_key_values=cache, use_cache=True
            )

    def _add(self, live: dict[int, Job], chosen: Any, chances: Any) -> None:
        """Give every row its token, and drop the rows that are over."""
        tokens, over = chosen.tolist(), self.ends[chosen].tolist()
        nats = chances.gather(1, chosen[:, None])[:, 0].tolist()
        top = chances.topk(4)
        ids, values = top.indices.tolist(), top.values.tolist()
        for row, job in list(live.items()):
            if job.how == "greedy":
                job.tops.append((ids[row], values[row]))
            if not job.add(tokens[row], nats[row], is_over=over[row]):
                del live[row]

    def _padded(self, rows: Sequence[list[int]]) -> tuple[Any, Any]:
        widest = max(map(len, rows))
        ids = self.torch.zeros(len(rows), widest, dtype=self.torch.long)
        mask = self.torch.zeros_like(ids)
        for row, tokens in enumerate(rows):
            ids[row, widest - len(tokens) :] = self.torch.tensor(tokens)
            mask[row, widest - len(tokens) :] = 1
        return ids.to(self.device), mask.to(self.device)


def branches(greedy: Job, count: int) -> list[Job]:
    """Begin again where another token was nearly as likely, the likeliest first: as `write.branches` does."""
    found = []
    for place, (tokens, nats) in enumerate(greedy.tops):
        own = nats[tokens.index(greedy.said[place])]
        others = [(other - own, place, token) for token, other in zip(tokens, nats, strict=True)]
        found += [each for each in others if each[2] != greedy.said[place]]
    jobs = []
    for _, place, token in sorted(found, reverse=True)[:count]:
        job = Job(greedy.task, greedy.prompt, "branch", 0.0, [*greedy.said[:place], token])
        before = zip(greedy.said[:place], greedy.tops, strict=False)
        job.nats = sum(nats[tokens.index(said)] for said, (tokens, nats) in before)
        tokens, nats = greedy.tops[place]
        job.nats += nats[tokens.index(token)]
        jobs.append(job)
    return jobs


def run(plan: Plan, checkpoint: Path, samples: int, turns: int) -> list[Found]:
    import torch  # type: ignore[import-not-found,unused-ignore]

    from vivace.bench.gpu.peers.transformers import load_transformers
    from vivace.engine.runners.cuda.model.vocabulary import GgufVocabulary
    from vivace.engine.runners.cuda.weights.gguf_file import GgufFile

    begun_s = time.perf_counter()
    model = load_transformers(checkpoint)
    file = GgufFile(checkpoint)
    vocabulary = GgufVocabulary(file.fields, checkpoint.name)
    file.close()
    pieces = [vocabulary.token_bytes(token) for token in range(model.config.vocab_size)]
    ends = torch.tensor([b"```" in piece for piece in pieces], device=model.device)
    ends[torch.tensor(plan.stops, device=model.device)] = True
    torch.manual_seed(1)
    writer = Writer(model, ends)
    jobs = [Job(task, prompt, "greedy", 0.0) for task in plan.tasks for prompt in task.prompts]
    writer.write(jobs)
    print(f"{time.perf_counter() - begun_s:.0f} s: greedy answers", flush=True)
    others = [job for greedy in jobs for job in branches(greedy, turns)]
    others += [
        Job(task, prompt, "sample", 0.8)
        for task in plan.tasks
        for prompt in task.prompts
        for _ in range(samples)
    ]
    random.Random(1).shuffle(others)
    writer.write(others)
    print(f"{time.perf_counter() - begun_s:.0f} s: {len(others)} others", flush=True)
    return distinct([*jobs, *others], pieces)


def distinct(jobs: Iterable[Job], pieces: Sequence[bytes]) -> list[Found]:
    found: dict[tuple[str, str, str, str], Found] = {}
    for job in jobs:
        if job.is_whole:
            tokens = job.begun + job.said
            text = b"".join(pieces[token] for token in tokens[:-1]).decode("utf-8", "replace")
            new = Found(job.task.set, job.task.name, job.prompt, text, len(tokens), [])
            found.setdefault((new.set, new.name, new.prompt, text), new).origins.append((job.how, job.nats))
    return list(found.values())
