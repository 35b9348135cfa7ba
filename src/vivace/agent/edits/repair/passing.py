"""Which of several proposals the user's tests take, and what they say of one that breaks some of them.

Owns the order: the first that passes; otherwise the one that breaks the fewest tests which passed before.
Does not own how tests run (`user_tests`) or what becomes of a proposal that breaks some (`flow`).
"""

from collections.abc import Sequence
from dataclasses import replace

from vivace.agent.edits.proposal import Proposal
from vivace.agent.edits.repair.user_tests import AllowedTests, RanTests, run_tests
from vivace.agent.effort import BUDGETS, Effort
from vivace.agent.events.edit import UserTestsEnded, UserTestsStarted
from vivace.agent.presenter import Presenter
from vivace.errors import TestsCannotRun

MAX_NAMED = 3  # tests
AS_IT_IS = Proposal(())


async def judged_by_tests(
    tests: AllowedTests, effort: Effort, proposal: Proposal, presenter: Presenter
) -> Proposal:
    """Return the proposal to offer. One that breaks tests which passed before says so as its fault.

    There are other answers only where one unit of one file is changed.
    """
    presenter.show(UserTestsStarted(tests.line))
    alone = proposal.files[0].others if len(proposal.files) == 1 else ()
    others = [replace(proposal, files=(each,)) for each in alone]  # what is missing stays missing
    candidates = [proposal, *others][: BUDGETS[effort].trials]
    failed: list[RanTests] = []
    try:
        for candidate in candidates:
            outcome = await run_tests(tests, candidate)
            if outcome.has_passed:
                presenter.show(UserTestsEnded(has_passed=True, tried=len(failed) + 1))
                return candidate
            failed.append(outcome)
        before = await run_tests(tests, AS_IT_IS)
    except TestsCannotRun as error:
        output = failed[0].output if failed else ""
        presenter.show(UserTestsEnded(False, len(failed), why_not=error.message, output=output))
        raise
    broken = [each.broken_since(before) for each in failed]
    best = min(range(len(candidates)), key=lambda index: len(broken[index]))
    presenter.show(UserTestsEnded(has_passed=False, tried=len(failed), output=failed[best].output))
    return _with_fault(candidates[best], broken[best])


def _with_fault(proposal: Proposal, broken: Sequence[str]) -> Proposal:
    if not broken:
        return proposal
    named = ", ".join(broken[:MAX_NAMED]) + (
        f" and {len(broken) - MAX_NAMED} more" if broken[MAX_NAMED:] else ""
    )
    first, *rest = proposal.files
    fault = f"Tests passed before this edit and fail with it: {named}."
    return replace(proposal, files=(replace(first, faults=(*first.faults, fault)), *rest))
