"""How to find and choose the right answer to an edit: prompts, samples and branches, on public tasks.

    prepare --model GGUF --data FOLDER PLAN      where llama.cpp is: the tasks as tokens
    run --model GGUF PLAN ANSWERS                on a GPU, with transformers, without llama.cpp
    judge --data FOLDER ANSWERS                  in the sandbox: which answers are right
    show ANSWERS                                 the tables, the held-out third apart

Owns the command; the parts are in benchmarks/candidates: `tasks`, `writing`, `judging`, `showing`. Does not
own what the product does with it (`agent.edits`). The figures are in benchmarks/results.
"""

import argparse
import asyncio
from pathlib import Path

import msgspec

from candidates.judging import judge
from candidates.showing import show
from candidates.tasks import Found, Plan, prepare, read_all
from candidates.writing import run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("what", choices=("prepare", "run", "judge", "show"))
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--model", type=Path, help="the GGUF file (prepare, run)")
    parser.add_argument("--data", type=Path, help="folder of the public tasks (prepare, judge, show)")
    parser.add_argument("--samples", type=int, default=7)
    parser.add_argument("--branches", type=int, default=9)
    options = parser.parse_args()
    last: Path = options.files[-1]
    match options.what:
        case "prepare":
            last.write_bytes(msgspec.json.encode(prepare(options.model, options.data)))
        case "run":
            plan = msgspec.json.decode(options.files[0].read_bytes(), type=Plan)
            found = run(plan, options.model, options.samples, options.branches)
            last.write_bytes(msgspec.json.encode(found))
        case "judge":
            found = msgspec.json.decode(last.read_bytes(), type=list[Found])
            asyncio.run(judge(found, options.data))
            last.write_bytes(msgspec.json.encode(found))
        case "show":
            found = msgspec.json.decode(last.read_bytes(), type=list[Found])
            show(found, {key for key, task in read_all(options.data) if task.is_held_out})


if __name__ == "__main__":
    main()
