"""What is recommended for a machine, and that the list can be pulled as it stands."""

import pytest

from vivace.config import DEFAULT_MODEL
from vivace.engine.tuning.fit import Machine
from vivace.engine.tuning.recommend import GB, QUICK_TOKENS, recommend, usual_machines
from vivace.models.catalog import CATALOG
from vivace.models.hub.curated import CURATED, Curated
from vivace.models.hub.names import is_hub_name, read_name

CONTEXT_TOKENS = 16_384


@pytest.mark.parametrize(("name", "machine"), usual_machines(), ids=[name for name, _ in usual_machines()])
def test_every_size_of_machine_has_a_pick_that_runs_well(name: str, machine: Machine) -> None:
    """It fits, is quick enough, may be used freely, and is not the small default."""
    picks = recommend(machine, CONTEXT_TOKENS)
    assert 1 <= len(picks) <= 3
    for model, found in picks:
        assert isinstance(model, Curated), name
        assert model.licence in ("Apache-2.0", "MIT")
        assert found.fits
        assert found.tokens_per_second >= QUICK_TOKENS
        assert found.is_on_gpu == ("GPU" in name)


def test_larger_machines_get_no_worse_models() -> None:
    """The list is in the order of what models can do: more room never means a later pick."""
    order = [model.name for model in CURATED]
    for part in ("memory", "GPU"):
        best = [
            order.index(recommend(machine, CONTEXT_TOKENS)[0].model.name)
            for name, machine in usual_machines()
            if part in name
        ]
        assert best == sorted(best, reverse=True)


def test_a_slow_machine_keeps_the_default() -> None:
    """Where nothing is quick enough, the model that the settings name is recommended."""
    slow = Machine("", 8 * GB, bytes_per_second=1e9, measured_with="")
    assert [pick.model.name for pick in recommend(slow, CONTEXT_TOKENS)] == [DEFAULT_MODEL]


@pytest.mark.parametrize("model", CURATED, ids=lambda model: model.name)
def test_a_recommendation_can_be_asked_for(model: Curated) -> None:
    """Its place on the hub reads as a name, its numbers are possible, its name is nobody else's."""
    assert is_hub_name(str(model.hub))
    assert read_name(str(model.hub)) == model.hub
    assert 0 < model.active_share <= 1
    assert 5 * 10**8 < model.size_bytes < 141 * GB
    assert model.context_tokens >= 32_768
    names = [each.name for each in CATALOG] + [each.name for each in CURATED]
    assert names.count(model.name) == 1
