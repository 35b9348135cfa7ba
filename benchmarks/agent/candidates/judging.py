"""Which answers are right: each as the file that it makes, run with the task's tests in the sandbox."""

import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from candidates.tasks import Found, read_all, unit_of


async def judge(found: Sequence[Found], data: Path) -> None:
    from vivace.agent.edits.apply.source import source_from_bytes, splice
    from vivace.agent.edits.check.choose import examples_for
    from vivace.agent.edits.check.tidy import tidy
    from vivace.agent.edits.find.languages import PYTHON
    from vivace.agent.edits.find.outline import list_units
    from vivace.agent.edits.proposal import make_proposal
    from vivace.agent.edits.write.rewrite import rewrite_request
    from vivace.eval.edits.scoring import judge as judge_code

    tasks = dict(read_all(data))
    by_task = defaultdict(list)
    for each in found:
        by_task[each.set, each.name].append(each)
    for number, (key, answers) in enumerate(by_task.items()):
        task = tasks[key]
        source = source_from_bytes(Path("solution.py"), task.code.encode())
        unit = unit_of(task.code)
        opening = rewrite_request(source, list_units(source, PYTHON), unit, task.instruction).opening
        for each in answers:
            text = tidy(source, PYTHON, unit, opening + each.text)
            proposal = make_proposal(
                source, unit, task.instruction, splice(source, unit.first_line, unit.last_line, text)
            )
            each.code = proposal.new_bytes.decode()
            each.is_usable = bool(proposal.hunks) and not proposal.problems
        verdicts = {code: await judge_code(task, code) for code in {each.code for each in answers}}
        await _count_held(answers, examples_for(proposal))
        for each in answers:
            each.is_right = verdicts[each.code][0] == "passed"
        print(f"{number + 1} of {len(by_task)}", end="\r", file=sys.stderr)


async def _count_held(answers: Sequence[Found], examples: list[Any]) -> None:
    from vivace.agent.edits.check.trial import try_out

    if not examples:
        return
    codes = list({each.code for each in answers})
    trials = await try_out("", codes, examples, functions=())
    assert trials, "there is a sandbox: the verdicts were given in it"
    held = {code: sum(trial.held) for code, trial in zip(codes, trials.each, strict=True)}
    for each in answers:
        each.held = held[each.code]
