"""A tiny model is trained from examples to an adapter that answers: seeds, stops, a tether to the base."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from tests.training.bed import END, SHAPE, repeating, tiny_decoder  # noqa: E402
from vivace.errors import UsageError  # noqa: E402
from vivace.training.adapter import Adapter, load_adapter  # noqa: E402
from vivace.training.answering import write_answers  # noqa: E402
from vivace.training.examples import Examples  # noqa: E402
from vivace.training.measuring import held_out_loss  # noqa: E402
from vivace.training.sft import ADAPTER, LOG, SftPlan, Training  # noqa: E402

PLAN = SftPlan(
    rank=8, alpha=16.0, learning_rate=2e-2, kl_weight=0.0, epochs=6, row_tokens=64, rows_per_step=4
)


def trained(folder: Path, plan: SftPlan = PLAN, examples: Examples | None = None) -> Adapter:
    training = Training(tiny_decoder(), examples or repeating(160), plan, folder, lambda _: None)
    adapter = training.run()
    assert training.is_done
    return adapter


def same(one: Adapter, other: Adapter) -> bool:
    pairs = zip(one.parameters, other.parameters, strict=True)
    return all(torch.equal(mine, theirs) for mine, theirs in pairs)


def test_it_learns_to_answer_what_it_has_not_seen(tmp_path: Path) -> None:
    """End to end: train, save, load, answer. The base knows none of the answers, the adapter most."""
    trained(tmp_path)
    decoder = tiny_decoder()
    adapter = load_adapter(tmp_path / ADAPTER, SHAPE, decoder.weights)
    unseen = repeating(40, seed=99)
    prompts = [unseen.prefix + row.prompt for row in unseen.rows]

    def right(which: Adapter | None) -> int:
        said = write_answers(decoder, which, prompts, {END}, 6)
        return sum(tuple(each) == row.answer for each, row in zip(said, unseen.rows, strict=True))

    assert right(None) == 0
    assert right(adapter) >= 30
    before, after = held_out_loss(decoder, None, unseen, 64), held_out_loss(decoder, adapter, unseen, 64)
    assert after["all"]["nats"] < 0.5 * before["all"]["nats"]
    assert set(after) == {"all", "project 0", "project 1"}


def test_the_same_seed_gives_the_same_adapter(tmp_path: Path) -> None:
    """To the bit on one machine; another seed gives another one."""
    plan = replace(PLAN, epochs=1)
    one, again = trained(tmp_path / "one", plan), trained(tmp_path / "again", plan)
    other = trained(tmp_path / "other", replace(plan, seed=2))
    assert same(one, again)
    assert not same(one, other)


def test_a_run_that_was_stopped_goes_on(tmp_path: Path) -> None:
    """In slices it comes to the adapter that it comes to in one go, and the log has each step once."""
    plan = replace(PLAN, epochs=1, kl_weight=0.1)
    whole = trained(tmp_path / "whole", plan)
    starts = 0
    while True:
        training = Training(tiny_decoder(), repeating(160), plan, tmp_path / "slices", lambda _: None)
        if training.is_done:
            break
        starts += 1
        training.run(seconds=1e-9)  # time for one step
    lines = (tmp_path / "slices" / LOG).read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == list(range(1, len(training.steps) + 1))
    assert starts == len(training.steps)
    assert same(training.adapter, whole)


def test_a_step_whose_gradient_is_not_finite_is_left_out(tmp_path: Path) -> None:
    """One NaN leaves adapter and optimiser as they were, the log says so, and the next step trains."""
    training = Training(tiny_decoder(), repeating(160), replace(PLAN, epochs=1), tmp_path, lambda _: None)

    def step() -> Adapter:
        training.run(seconds=1e-9)  # time for one step
        return training.adapter.rounded(torch.float32)

    def spoil(gradient: "torch.Tensor") -> "torch.Tensor":  # type: ignore[name-defined]
        return torch.where(torch.arange(len(gradient))[:, None] == 0, torch.nan, gradient)

    first = Adapter(8, 16.0, {name: (a.clone(), b.clone()) for name, (a, b) in step().pairs.items()})
    spoiled = training.adapter.parameters[0].register_hook(spoil)
    assert same(first, step())
    spoiled.remove()
    assert not same(first, step())
    assert all(bool(torch.isfinite(each).all()) for each in training.adapter.parameters)
    assert {int(each["step"]) for each in training._optimizer.state.values()} == {2}
    lines = [json.loads(line) for line in (tmp_path / LOG).read_text().splitlines()]
    assert [line.get("is_left_out", False) for line in lines] == [False, True, False]


def test_a_state_of_another_plan_is_refused(tmp_path: Path) -> None:
    """A folder holds one run: another rate or other examples do not go on with it."""
    plan = replace(PLAN, epochs=1)
    trained(tmp_path, plan)
    with pytest.raises(UsageError, match="another plan"):
        Training(tiny_decoder(), repeating(160), replace(plan, learning_rate=1e-3), tmp_path)
    with pytest.raises(UsageError, match="other data"):
        Training(tiny_decoder(), repeating(159), plan, tmp_path)


def test_the_tether_keeps_the_model_near_the_base(tmp_path: Path) -> None:
    """With a KL term the adapted model stays nearer to the base than without."""
    decoder, unseen = tiny_decoder(), repeating(40, seed=99)

    def distance(weight: float) -> float:
        adapter = trained(tmp_path / str(weight), replace(PLAN, epochs=2, kl_weight=weight))
        return held_out_loss(decoder, adapter, unseen, 64, against_base=True)["all"]["kl"]

    assert 0 < distance(2.0) < 0.5 * distance(0.0)


def test_figures_are_taken_while_it_trains(tmp_path: Path) -> None:
    """A hook is asked every so many steps and at the end, and what it says is in the log."""
    plan = replace(PLAN, epochs=1, measure_every=3)
    training = Training(tiny_decoder(), repeating(80), plan, tmp_path, lambda _: None)
    training.run(hook=lambda step, _: {"measured_at": step})
    lines = [json.loads(line) for line in (tmp_path / LOG).read_text().splitlines()]
    last = len(training.steps)
    assert [line["measured_at"] for line in lines if "measured_at" in line] == sorted(
        {*range(3, last + 1, 3), last}
    )


def test_copied_tokens_can_weigh_less(tmp_path: Path) -> None:
    """With no weight on what is copied, only the changed tokens are learned."""
    marked = [replace(row, changed=(False, True, True)) for row in repeating(160).rows]
    examples = Examples(repeating(1).prefix, tuple(marked))
    adapter = trained(tmp_path, replace(PLAN, copied_weight=0.0), examples)
    decoder, unseen = tiny_decoder(), repeating(40, seed=99)
    prompts = [unseen.prefix + row.prompt for row in unseen.rows]
    first = write_answers(decoder, adapter, prompts, {END}, 6)
    rest = write_answers(
        decoder, adapter, [(*p, row.answer[0]) for p, row in zip(prompts, unseen.rows, strict=True)], {END}, 6
    )
    assert sum(each[0] == row.answer[0] for each, row in zip(first, unseen.rows, strict=True)) <= 5
    assert sum(tuple(each) == row.answer[1:] for each, row in zip(rest, unseen.rows, strict=True)) >= 30
