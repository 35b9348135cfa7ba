"""How often the unit that an instruction means is found: by the words alone, and with the model.

    .venv/bin/python benchmarks/agent/locate.py [--model NAME] [--verbose]

The cases are instructions a person might give for three files of this repository, each with the units that
would be right. Scores come from the warm server, as in `vivace edit`.
"""

import argparse
import asyncio
from pathlib import Path

from vivace.agent.edits.apply.source import read_source
from vivace.agent.edits.find.languages import language_for
from vivace.agent.edits.find.locate import locate
from vivace.agent.edits.find.outline import list_units
from vivace.agent.edits.find.units import Unit
from vivace.agent.model import Model
from vivace.agent.prompting import Message
from vivace.client.responses import ResponsesClient
from vivace.client.warm import ensure_server
from vivace.config import load_settings

ROOT = Path(__file__).parents[2]
CASES: dict[str, list[tuple[str, set[str]]]] = {
    "examples/todo.py": [
        ("give every task a priority from 1 to 3, default 2", {"Task"}),
        ("rename the parameter number to index in remove", {"TodoList.remove"}),
        ("add a docstring to load", {"load"}),
        ("make finish raise a ValueError when the number is out of range", {"TodoList.finish"}),
        ("save atomically through a temporary file", {"save"}),
        ("open_tasks should return the tasks sorted by title", {"TodoList.open_tasks"}),
        ("show done tasks with a check mark instead of x", {"Task", "Task.line"}),
        ("print the usage to stderr", {"main"}),
        ("add a method that counts the open tasks", {"new", "TodoList"}),
        ("add a function that exports the list as markdown", {"new"}),
        ("return an empty list when the json file is broken", {"load"}),
        ("add a command 'undo' that marks a task as open again", {"main"}),
        ("strip white space from the title when a task is added", {"TodoList.add"}),
        ("store the date when a task was created", {"Task"}),
        ("add type hints everywhere", {"file"}),
        ("use double quotes in the usage message", {"main"}),
        ("allow removing several tasks at once", {"TodoList.remove"}),
        ("rename TodoList to Tasks everywhere", {"file"}),
    ],
    "benchmarks/cases/config.py": [
        ("let VIVACE_HOME override both folders", {"load_settings", "_base"}),
        ("log the file name when the toml is broken", {"_read_toml"}),
        ("add a setting for the log level, default info", {"Settings"}),
        ("change the default port to 9000", {"Settings"}),
        ("rename having to with_changes", {"Settings.having"}),
        ("the default model should be smollm2-135m", {"top"}),
        ("add a property for the log file in run_dir", {"new", "Settings"}),
        ("sort the known settings in the error message", {"_checked"}),
        ("accept empty environment variables as unset", {"_from_environment"}),
        ("add a function that writes settings back to a file", {"new"}),
        ("import json too", {"top"}),
        ("expand variables in paths", {"_decode"}),
        ("document every function", {"file"}),
    ],
    "benchmarks/cases/session.py": [
        ("count evictions", {"Sessions", "Sessions._evict"}),
        ("fork should copy the name", {"Sessions.fork"}),
        ("log when a session is evicted", {"Sessions._evict"}),
        ("use linear search instead of halving for the common prefix", {"_common"}),
        ("raise if a session is opened with more than 1000 tokens", {"Sessions.open"}),
        ("add a method that lists the session names", {"new", "Sessions"}),
        ("pending should never be negative", {"Session.pending"}),
        ("keep 32 scratch sequences", {"top"}),
        ("rewind should accept negative lengths", {"Sessions.rewind"}),
        ("close should ignore unknown names", {"Sessions.close"}),
    ],
}


class UniformScorer:
    """A scorer without a model: every candidate has the same score."""

    async def score(self, messages: list[Message], candidates: list[str]) -> list[float]:
        del messages
        return [0.0] * len(candidates)


def label(unit: Unit) -> str:
    return unit.kind if unit.kind in ("file", "new") else unit.qualified_name


async def count(scorer: Model | UniformScorer, verbose: bool) -> dict[str, int]:
    right: dict[str, int] = {}
    for name, cases in CASES.items():
        source = read_source(ROOT / name)
        units = list_units(source, language_for(source.path))
        right[name] = 0
        for instruction, expected in cases:
            found = label(await locate(scorer, source, units, instruction))
            right[name] += found in expected
            if verbose:
                print(f"{'ok ' if found in expected else 'BAD'} {instruction:<62} {found}")
    return right


async def measure(model: str | None, verbose: bool) -> None:
    settings = load_settings().having(model=model)
    async with ResponsesClient(ensure_server(settings)) as client:
        both = await count(Model(client, settings.model), verbose)
    words = await count(UniformScorer(), False)
    print(f"{'file':<32}{'cases':>6}{'words only':>12}{'with model':>12}   {settings.model}")
    for name, cases in CASES.items():
        print(f"{name:<32}{len(cases):>6}{words[name]:>12}{both[name]:>12}")
    total = sum(map(len, CASES.values()))
    print(f"{'together':<32}{total:>6}{sum(words.values()):>12}{sum(both.values()):>12}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model")
    parser.add_argument("--verbose", action="store_true")
    args = parser.parse_args()
    asyncio.run(measure(args.model, args.verbose))


if __name__ == "__main__":
    main()
