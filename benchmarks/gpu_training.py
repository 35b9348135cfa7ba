"""Training on a borrowed GPU that can reach nothing: the weights once, then one run a call.

    prepare --model FILE.gguf --data FOLDER   here: weights in pieces, a wheel, tokens → dist/lease
    keep                                      there, once a piece
    run NAME [--no-base] OPTION …             there: the base answers, training, the adapter answers → out
    widths                                    there, without weights: which row widths give a gradient

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


def widths(work: Path, device: str, largest: int) -> None:
    """Take gradients with random weights at each width of rows; say which are no numbers, and the speed.

    Scores are far below zero, as in some heads of the real model: there cuDNN's kernel fails, if it does.
    """
    unpack_wheels(THINGS / "wheels", work / "site")
    sys.path[:0] = [str(ROOT / "src"), str(work / "site")]
    import torch  # type: ignore[import-not-found,unused-ignore]

    from vivace.engine.runners.cuda.model.shape import KNOWN_SHAPES
    from vivace.engine.runners.cuda.weights.build import random_weights
    from vivace.training.adapter import new_adapter
    from vivace.training.decoder import Decoder
    from vivace.training.loss import backward
    from vivace.training.packing import Batch

    shape = KNOWN_SHAPES["qwen2.5-coder-1.5b"]
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    weights = random_weights(shape, 1, device)
    for index in range(shape.layers):  # the slowest dimension of every head: all scores are near -120
        for name, value in (("q", 37.0), ("k", -37.0)):
            weights[f"layers.{index}.self_attn.{name}_proj.bias"].view(-1, 128)[:, 63] = value
    decoder = Decoder(shape, weights, device, dtype)
    adapter = new_adapter(shape, decoder.weights, 16, 32.0, 1, decoder.device)
    where = torch.cuda.get_device_name() if device == "cuda" else device
    cudnn: int | None = torch.backends.cudnn.version()  # type: ignore[no-untyped-call,unused-ignore]
    print(f"torch {torch.__version__}, cuDNN {cudnn}, {where}")
    cases = [(width, is_on) for width in range(1024, largest + 1, 64) for is_on in (True, False)]
    for width, is_on in cases:
        torch.backends.cuda.enable_cudnn_sdp(is_on)
        columns = torch.arange(width)
        places = torch.cartesian_prod(torch.arange(4), columns[300:-1:4])
        batch = Batch(
            tokens=torch.randint(shape.vocab, (4, width)),
            positions=columns.repeat(4, 1),
            segments=(columns // 300).repeat(4, 1),  # a prefix of 300, and examples as long
            places=places,
            targets=torch.randint(shape.vocab, (len(places),)),
            owners=torch.zeros(len(places), dtype=torch.long),
            changed=torch.ones(len(places), dtype=torch.bool),
        ).to(device)
        took = []
        for _ in range(3):
            begun = time.monotonic()
            for each in adapter.parameters:
                each.grad = None
            backward(decoder, adapter, batch, 0.05, len(batch.targets))
            gradients = [each.grad for each in adapter.parameters if each.grad is not None]
            wrong = sum(not bool(torch.isfinite(each).all()) for each in gradients)
            took.append(time.monotonic() - begun)
        told = f"wrong {wrong:3} of {len(adapter.parameters)}  {4 * width / min(took):8.0f} tokens/s"
        print(f"{width:5} = {width // 64:3} × 64  cuDNN {'on ' if is_on else 'off'}  {told}", flush=True)


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
    parser.add_argument("what", choices=("prepare", "keep", "run", "widths"))
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
    elif options.what == "widths":
        widths(options.work, options.gpu, options.most or 4096)
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
