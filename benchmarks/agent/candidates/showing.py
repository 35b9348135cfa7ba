"""The ways of choosing that were compared, and the table of what each would have got right."""

from collections import defaultdict
from collections.abc import Callable, Sequence

from candidates.tasks import PROMPTS, SETS, Found

Ranking = Callable[[Found], tuple[float, ...]]


def nats(each: Found) -> float:
    return max(value for _, value in each.origins)


RANKINGS: dict[str, Ranking] = {
    "likeliest": lambda each: (nats(each),),
    "likeliest a token": lambda each: (nats(each) / each.tokens,),
    "most frequent": lambda each: (len(each.origins), nats(each) / each.tokens),
    "examples, then likeliest a token": lambda each: (each.held, nats(each) / each.tokens),
}


def show(found: Sequence[Found], held_out: set[tuple[str, str]]) -> None:
    """One line a way: share that is right in each set; tuned, held out, all, and refused."""
    by_task: dict[tuple[str, str], list[Found]] = defaultdict(list)
    for each in found:
        by_task[each.set, each.name].append(each)
    for prompt in PROMPTS:
        show_way(f"{prompt}: first", by_task, prompt, ("greedy",), RANKINGS["likeliest"], held_out)
        for how in ("sample", "branch"):
            for name, ranking in RANKINGS.items():
                show_way(f"{prompt}: {how}, {name}", by_task, prompt, ("greedy", how), ranking, held_out)


def show_way(
    title: str,
    by_task: dict[tuple[str, str], list[Found]],
    prompt: str,
    hows: Sequence[str],
    ranking: Ranking,
    held_out: set[tuple[str, str]],
) -> None:
    cells = []
    for set_name in SETS:
        keys = [key for key in by_task if key[0] == set_name]
        chosen = {}
        for key in keys:
            usable = [
                each
                for each in by_task[key]
                if each.prompt == prompt and each.is_usable and any(how in hows for how, _ in each.origins)
            ]
            chosen[key] = max(usable, key=ranking, default=None)
        for part in ([key for key in keys if key not in held_out], [key for key in keys if key in held_out]):
            right = sum(1 for key in part if (best := chosen[key]) and best.is_right)
            cells.append(f"{100 * right / max(1, len(part)):5.1f}")
        cells.append(f"({sum(best is None for best in chosen.values()):3} refused)")
    print(f"{title:<52}" + " ".join(cells))
