"""Several adapters in one lease of a GPU: the model's own right answers, exact targets, and mixtures of both.

    prepare, keep      as in gpu_training
    run NAME …         there: the base answers, its samples are kept if right, then each variant → out

Each variant is trained, rounded to 8 bits, merged, measured and asked. Owns which variants there are and
their data. Answers are judged on a machine with a sandbox: `python -m vivace.training judge`.
"""

import argparse
import json
import random
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpu_carry import ROOT, keep, unpack_wheels
from gpu_training import THINGS, _memory, _model, _teller, prepare

RANK, ALPHA = 8, 16.0
INFERABLE_SHARE = 0.6  # of the tasks that the base got wrong: those whose change it finds likeliest
PLAN: Mapping[str, Any] = {"rank": RANK, "alpha": ALPHA, "kl_weight": 0.0, "rows_per_step": 4}
# name: data, and what differs in the plan
VARIANTS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "exact": ("exact", {"learning_rate": 1e-4, "copied_weight": 0.1}),
    "own": ("own", {"learning_rate": 1e-4}),
    "mixed": ("mixed", {"learning_rate": 1e-4, "copied_weight": 0.1}),
    "plain": ("exact", {"learning_rate": 1e-4}),
    "slow": ("mixed", {"learning_rate": 3e-5, "copied_weight": 0.1}),
    "tied": ("mixed", {"learning_rate": 1e-4, "copied_weight": 0.1, "kl_weight": 0.1}),
    "fast": ("mixed", {"learning_rate": 3e-4, "copied_weight": 0.1}),
}


class Lease:
    """The model, its data and the time that is left."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options, self.begun = options, time.monotonic()
        self.say = _teller(self.begun)
        self.data, self.out, self.work = THINGS / "job", Path(options.out), Path(options.work)
        self.model = _model(self.work)
        from vivace.training.decoder import open_decoder
        from vivace.training.examples import load_examples
        from vivace.training.own import read_tasks

        self.decoder: Any = open_decoder(self.model, options.gpu)
        self.examples: Any = load_examples(self.data / "train.pt")
        self.tasks = read_tasks(self.data)
        self.say("weights and data are here", len(self.tasks))

    @property
    def left(self) -> float:
        return float(self.options.seconds) - (time.monotonic() - self.begun)

    def answer(self, decoder: Any, name: str) -> None:
        from vivace.training import __main__ as commands

        path, most = self.out / f"{name}.jsonl", self.options.most
        commands.answer_questions(decoder, None, self.data, self.model, path, most)

    def measured(self, decoder: Any) -> dict[str, Any]:
        from vivace.training import __main__ as commands
        from vivace.training.examples import load_examples
        from vivace.training.measuring import held_out_loss

        found = {}
        for each in (commands.DEV, commands.PLAIN):
            rows = load_examples(self.data / each)
            if rows.rows:
                found[each] = held_out_loss(decoder, None, rows)["all"]
        return found


def own_answers(lease: Lease, count: int) -> tuple[Any, dict[str, Any]]:
    """Return right samples of the base for the first tasks of each kind, and how many were right."""
    from vivace.training.__main__ import open_words
    from vivace.training.examples import Examples
    from vivace.training.own import sample_own

    stops, text_of = open_words(lease.decoder, lease.data, lease.model)
    rows: list[Any] = []
    counts: dict[str, Any] = {}
    for kind, share in (("open", 0.1), ("edit", 0.4), ("mutation", 0.5)):
        chosen = [at for at, task in enumerate(lease.tasks) if task.kind == kind][: round(count * share)]
        part = Examples(lease.examples.prefix, tuple(lease.examples.rows[at] for at in chosen))
        tasks = [lease.tasks[at] for at in chosen]
        found, counts[kind] = sample_own(lease.decoder, part, tasks, stops, text_of)
        rows += found.rows
        lease.say("sampled", kind, counts[kind])
    return Examples(lease.examples.prefix, tuple(rows)), counts


def data_sets(lease: Lease, own: Any) -> dict[str, Any]:
    """Return what variants train on. Own answers to open requests are in each: they keep what it can do."""
    from vivace.training.examples import Examples

    exact = [row for row in lease.examples.rows if row.kind in ("mutation", "edit")]
    opens = [row for row in own.rows if row.kind == "open"]
    known = {row.name for row in own.rows}
    unknown = _likely(
        lease, Examples(lease.examples.prefix, tuple(row for row in exact if row.name not in known))
    )
    sets = {"exact": [*exact, *opens], "own": own.rows, "mixed": [*own.rows, *unknown]}
    lease.say({name: len(rows) for name, rows in sets.items()})
    return {name: Examples(lease.examples.prefix, tuple(rows)) for name, rows in sets.items()}


def _likely(lease: Lease, examples: Any) -> list[Any]:
    """Return the examples whose changed tokens the base finds likeliest: the request tells them."""

    from vivace.training.loss import measure
    from vivace.training.packing import collate, pack
    from vivace.training.sft import SftPlan

    room = SftPlan().row_tokens - len(examples.prefix)
    rows = pack([len(row) for row in examples.rows], room, random.Random(0))
    nats: dict[int, float] = {}
    for start in range(0, len(rows), 4):
        batch = collate(examples.prefix, examples.rows, rows[start : start + 4])
        found, _ = measure(lease.decoder, None, batch.to(lease.decoder.device))
        for index in sorted(set(batch.owners.tolist())):
            own = (batch.owners == index) & batch.changed
            if bool(own.any()):
                nats[index] = float(found.cpu()[own].mean())
    order = sorted(nats, key=lambda index: nats[index])
    return [examples.rows[index] for index in order[: round(INFERABLE_SHARE * len(order))]]


def one_variant(lease: Lease, name: str, sets: Mapping[str, Any], rate: float) -> dict[str, Any]:
    from vivace.training.adapter import as_stored, merge, save_adapter
    from vivace.training.decoder import Decoder
    from vivace.training.sft import LOG, SftPlan, Training

    data, changes = VARIANTS[name]
    plan = SftPlan(**{**PLAN, **changes})
    lease.say("——", name, data, changes)
    training = Training(lease.decoder, sets[data], plan, lease.work / name, lambda _: None)
    begun = time.monotonic()
    adapter = training.run(min(rate, lease.left - 40))
    seconds = time.monotonic() - begun
    save_adapter(adapter, lease.out / f"{name}.adapter.safetensors", bits=8)
    logged = [json.loads(line) for line in (lease.work / name / LOG).read_text().splitlines()]
    (lease.out / f"{name}.log.jsonl").write_text((lease.work / name / LOG).read_text())
    decoder = lease.decoder
    merged = Decoder(decoder.shape, merge(decoder.weights, as_stored(adapter)), decoder.device, decoder.dtype)
    found = {
        **{"steps": training.step, "of": len(training.steps), "seconds": round(seconds)},
        **{"left_out": sum("is_left_out" in each for each in logged), "first": logged[0], "last": logged[-1]},
        **lease.measured(merged),
    }
    lease.say("trained and measured", _memory(lease.options.gpu), found)
    lease.answer(merged, name)
    lease.say("answered")
    return found


def run(options: argparse.Namespace) -> None:
    unpack_wheels(THINGS / "wheels", options.work / "site")
    sys.path[:0] = [str(ROOT / "src"), str(options.work / "site")]
    options.out.mkdir(parents=True, exist_ok=True)
    lease = Lease(options)
    from vivace.training.examples import load_examples, save_examples

    found: dict[str, Any] = {}
    own_path = options.work / "own.pt"
    if own_path.exists():
        own = load_examples(own_path)
    else:
        lease.answer(lease.decoder, "base")
        found["base"] = lease.measured(lease.decoder)
        lease.say("base has answered", found["base"])
        own, found["own answers"] = own_answers(lease, options.tasks)
        save_examples(own, own_path)
    sets = data_sets(lease, own)
    for name in options.names:
        if lease.left > options.least:
            found[name] = one_variant(lease, name, sets, options.train_seconds)
            told = json.dumps(found, indent=1)
            (options.out / f"variants-{options.names[0]}.json").write_text(told)
        else:
            lease.say("no time for", name)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("what", choices=("prepare", "keep", "run"))
    parser.add_argument("names", nargs="*", default=[], help=f"of variants: {', '.join(VARIANTS)}")
    parser.add_argument("--model", type=Path)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--python", default="312")
    parser.add_argument("--work", type=Path, default=Path("/tmp/vivace-training"))
    parser.add_argument("--out", type=Path, default=Path("/tmp/vivace-training/out"))
    parser.add_argument("--gpu", default="cuda", help="or cpu, for a try")
    parser.add_argument("--most", type=int, default=0, help="questions of each set; 0: all")
    parser.add_argument("--tasks", type=int, default=3000, help="that the base is sampled for")
    parser.add_argument("--seconds", type=float, default=540, help="for all that runs")
    parser.add_argument("--least", type=float, default=75, help="seconds that a variant needs")
    parser.add_argument("--train-seconds", type=float, default=60, help="of one variant at most")
    options = parser.parse_args()
    if options.what == "prepare":
        prepare(options.model, options.data, options.python)
    elif options.what == "keep":
        keep(options.work)
    else:
        run(options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
