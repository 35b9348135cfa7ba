"""Training on a borrowed GPU that can reach nothing: the weights once, then one run a call.

    prepare --model FILE.gguf --data FOLDER   here: weights in pieces, a wheel, tokens → dist/lease
    keep                                      there, once a piece
    run NAME [--no-base] OPTION …             there: the base answers, training, the adapter answers → out

FOLDER is what `python -m vivace.training prepare` wrote; OPTIONs are those of `… train`. Answers are judged
on a machine with a sandbox: `… judge`. Owns the order; how things get there is `gpu_carry`'s.
"""

import argparse
import hashlib
import json
import shutil
import sys
import time
from pathlib import Path
from typing import Any

from gpu_carry import LEASE, ROOT, cut, download_wheels, join, keep, unpack_wheels

THINGS = LEASE / "things"
PART_BYTES = 15 << 20  # of what comes back in one file


def prepare(model: Path, data: Path, python: str) -> None:
    """Fill dist/lease."""
    THINGS.mkdir(parents=True, exist_ok=True)
    download_wheels(THINGS / "wheels", python, "-c", str(ROOT / "constraints.txt"), "msgspec")
    shutil.copytree(data, THINGS / "job", dirs_exist_ok=True)
    with model.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    facts = {"name": model.name, "sha256": digest, "pieces": cut(model, LEASE)}
    (THINGS / "model.json").write_text(json.dumps(facts))
    print(facts)


def run(name: str, work: Path, out: Path, device: str, most: int, with_base: bool, words: list[str]) -> None:
    """Answer, train, measure and answer again; leave what comes back in `out`."""
    begun = time.monotonic()
    say = _teller(begun)
    unpack_wheels(THINGS / "wheels", work / "site")
    sys.path[:0] = [str(ROOT / "src"), str(work / "site")]
    model = _model(work)
    from vivace.training import __main__ as commands
    from vivace.training.decoder import open_decoder
    from vivace.training.examples import load_examples
    from vivace.training.measuring import held_out_loss
    from vivace.training.sft import ADAPTER, LOG, Training

    data = THINGS / "job"
    options = commands._parser().parse_args(
        ["train", "--model", str(model), "--data", str(data), "--out", str(work / name), *words]
    )
    decoder = open_decoder(model, device)
    say("weights are here")
    held_out = {each: load_examples(data / each) for each in (commands.DEV, commands.PLAIN)}
    found: dict[str, Any] = {"name": name, "words": words}
    if with_base:
        commands.answer_questions(decoder, None, data, model, out / "base.jsonl", most)
        say("base has answered")
        found["base"] = {each: held_out_loss(decoder, None, rows) for each, rows in held_out.items()}
        say("base is measured", {each: rows["all"] for each, rows in found["base"].items()})
    examples = load_examples(data / commands.TRAIN)
    if options.kinds:
        examples = examples.of_kinds(*options.kinds.split(","))
    plan = commands.plan_of(options)
    training = Training(decoder, examples, plan, work / name, say)
    say(f"{len(examples.rows)} examples, {len(training.steps)} steps", plan)
    adapter = training.run(options.seconds)
    say(f"trained: step {training.step}", _memory(device))
    _save_parts(work / name / ADAPTER, out, name)
    shutil.copy(work / name / LOG, out / f"{name}.log.jsonl")
    found["after"] = {
        each: held_out_loss(decoder, adapter, rows, against_base=True) for each, rows in held_out.items()
    }
    say("adapter is measured", {each: rows["all"] for each, rows in found["after"].items()})
    (out / f"{name}.json").write_text(json.dumps(found, indent=1))
    commands.answer_questions(decoder, adapter, data, model, out / f"{name}.jsonl", most)
    say("adapter has answered")


def _teller(begun: float) -> Any:
    def say(*words: Any) -> None:
        print(f"[{time.monotonic() - begun:6.1f}]", *words, flush=True)

    return say


def _model(work: Path) -> Path:
    facts = json.loads((THINGS / "model.json").read_text())
    model = work / str(facts["name"])
    if not model.exists():
        part = model.with_suffix(".part")
        assert join(work, part) == facts["pieces"], "not all pieces are here"
        with part.open("rb") as file:
            assert hashlib.file_digest(file, "sha256").hexdigest() == facts["sha256"], "a piece is damaged"
        part.rename(model)
    return model


def _memory(device: str) -> str:
    import torch  # type: ignore[import-not-found,unused-ignore]

    return f"{torch.cuda.max_memory_allocated() / 2**30:.0f} GiB" if device == "cuda" else ""


def _save_parts(adapter: Path, out: Path, name: str) -> None:
    raw = adapter.read_bytes()
    for number, at in enumerate(range(0, len(raw), PART_BYTES)):
        (out / f"{name}.adapter.{number}").write_bytes(raw[at : at + PART_BYTES])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("what", choices=("prepare", "keep", "run"))
    parser.add_argument("name", nargs="?", default="")
    parser.add_argument("--model", type=Path)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--python", default="312", help="version of the other machine's Python (prepare)")
    parser.add_argument("--work", type=Path, default=Path("/tmp/vivace-training"))
    parser.add_argument("--out", type=Path, default=Path("/tmp/vivace-training/out"))
    parser.add_argument("--gpu", default="cuda", help="or cpu, for a try (run)")
    parser.add_argument("--most", type=int, default=0, help="questions of each set; 0: all (run)")
    parser.add_argument("--no-base", action="store_true", help="the base has answered already (run)")
    options, words = parser.parse_known_args()
    if options.what == "prepare":
        prepare(options.model, options.data, options.python)
    elif options.what == "keep":
        keep(options.work)
    else:
        options.out.mkdir(parents=True, exist_ok=True)
        run(
            *(options.name, options.work, options.out, options.gpu, options.most),
            not options.no_base,
            words,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
