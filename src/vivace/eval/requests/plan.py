"""Requests as a plan of the evaluation: how one is answered and judged, and what a run needs beforehand.

Owns the names of the two sets and where their trees are kept. Does not own the order of the work
(`edits.run`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from vivace.agent.model import Model
from vivace.eval.edits.results import BARE, Answer, Results, Way
from vivace.eval.edits.run import Plan, answered_in
from vivace.eval.edits.scoring import Verdict
from vivace.eval.requests.answering import answer_request
from vivace.eval.requests.judging import judge_request
from vivace.eval.requests.repository import read_repository_tasks
from vivace.eval.requests.requests import Request, Tests, read_projects, read_requests
from vivace.eval.requests.trees import environment_for, fetch_projects

Say = Callable[[str], None]


@dataclass(frozen=True)
class Kept:
    """Where what is fetched is kept, and where repository tasks are."""

    folder: Path  # of evaluations
    tasks: Path | None = None  # None: the set of plain requests

    @property
    def archives(self) -> Path:
        return self.folder / "sdists"

    @property
    def environments(self) -> Path:
        return self.folder / "environments"


@dataclass(frozen=True)
class RequestsPlan(Plan[Request]):
    environments: Path = Path()  # for a project's own tests; each is made before it is needed

    async def answer(self, task: Request, effort: Way, model: Model) -> Answer:
        assert effort != BARE, "a request needs the loop"
        return await answer_request(self.set_name, task, effort, model)

    async def judge(self, task: Request, code: str) -> tuple[Verdict, str]:
        tests = task.judged_by
        environment = None
        if isinstance(tests, Tests):
            environment = environment_for(tests.packages, self.environments, lambda _: None)
        return await judge_request(task, code, environment)


def read_set(kept: Kept) -> list[Request]:
    """Return what can be asked."""
    return read_repository_tasks(kept.tasks) if kept.tasks else read_requests(kept.archives)


def fetch_trees(requests: Sequence[Request], kept: Kept, say: Say) -> None:
    """Fetch the trees that these requests are about, if they are not here yet."""
    wanted = {each.archive.name for each in requests}
    if not kept.tasks:
        fetch_projects([each for each in read_projects() if each.archive in wanted], kept.archives, say)


def prepare_judging(requests: Sequence[Request], kept: Kept, say: Say) -> None:
    """Make the environments that the requests' tests need."""
    for packages in {each.judged_by.packages for each in requests if isinstance(each.judged_by, Tests)}:
        environment_for(packages, kept.environments, say)


def request_plans_of(results: Results, kept: Kept, say: Say) -> list[RequestsPlan]:
    """Return what a results file has answers to: a plan for each model in it."""
    wanted = "repository" if kept.tasks else "requests"
    plans = []
    for (set_name, model), (efforts, answered) in answered_in(results).items():
        if set_name == wanted:
            requests = tuple(each for each in read_set(kept) if each.name in answered)
            fetch_trees(requests, kept, say)
            plans.append(RequestsPlan(set_name, model, efforts, requests, environments=kept.environments))
    return plans
