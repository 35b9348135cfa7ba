"""What a model and this machine can read of a client's prompt, and which of its prompts that means.

Owns the choice. Does not own the prompts (`clients`), nor what was measured (`engine.tuning.profile`).
"""

from dataclasses import dataclass

from vivace.cli.launch.clients import Client, Prompt
from vivace.config import Settings
from vivace.models import store
from vivace.models.tokenizer import SCRIPTED

PATIENCE_S = 30.0  # for the first prompt of a client; it is read once
CPU_TOKENS_PER_SECOND = 60.0  # of a prompt, where nothing was measured
GPU_TOKENS_PER_SECOND = 3000.0
GPU_WINDOW_TOKENS = 65_536  # where it depends on the memory that is free when the model is loaded
UPSTREAM_WINDOW_TOKENS = 131_072
ROOM = 2  # a prompt may take a half of the window
OUTPUT_SHARE, OUTPUT_TOKENS = 4, 8192  # the longest answer: a share of the window, or this


@dataclass(frozen=True)
class Place:
    """Where a model runs, as far as a client's prompt is concerned."""

    window_tokens: int
    prompt_tokens_per_second: float
    weights_gb: float

    @property
    def output_tokens(self) -> int:
        return min(self.window_tokens // OUTPUT_SHARE, OUTPUT_TOKENS)

    def suits(self, prompt: Prompt) -> bool:
        """Return whether the model can hold it, makes something of it, and has read it soon."""
        return (
            prompt.tokens * ROOM <= self.window_tokens
            and prompt.tokens <= PATIENCE_S * self.prompt_tokens_per_second
            and prompt.weights_gb <= self.weights_gb
        )


def choose_prompt(client: Client, place: Place) -> Prompt:
    """Return the longest prompt that suits the place, or the shortest."""
    return next((each for each in client.prompts if place.suits(each)), client.prompts[-1])


def place_of(settings: Settings) -> Place:
    """Return what is known of the settings' model on this machine, whether or not it is loaded."""
    name = settings.model
    if settings.is_elsewhere(name):
        return Place(UPSTREAM_WINDOW_TOKENS, float("inf"), float("inf"))
    if name.startswith(SCRIPTED):
        return Place(settings.context_tokens, CPU_TOKENS_PER_SECOND, 0.0)
    is_on_cpu = _device(settings) == "cpu"
    held = settings.context_tokens if is_on_cpu else settings.gpu_context_tokens or GPU_WINDOW_TOKENS
    trained = settings.session_tokens or _trained_tokens(settings)
    speed = _cpu_speed(settings) if is_on_cpu else GPU_TOKENS_PER_SECOND
    return Place(min(held, trained or held), speed, (store.weights_bytes(settings, name) or 0) / 1e9)


def _device(settings: Settings) -> str:
    from vivace.engine.devices.machine import Machine, detect_machine
    from vivace.engine.devices.ranking import rank_runners
    from vivace.engine.wire.device import parse_device

    wish = parse_device(settings.device)
    machine = Machine() if wish.kind == "cpu" else detect_machine(settings.cache_dir)
    return rank_runners(machine, wish).choices[0].device


def _trained_tokens(settings: Settings) -> int:
    """Return how long a session may be that the model was trained for; 0: not known before it is loaded."""
    cards = store.present_cards(settings)
    return next((card.context_tokens for card in cards if card.name == settings.model), 0)


def _cpu_speed(settings: Settings) -> float:
    """Return the tokens of a prompt that are read in a second, as tuning measured it."""
    from vivace.engine.tuning.profile import tuned

    profile = tuned(settings, store.model_path(settings, settings.model))
    costs_ms = profile.chunk_costs.values() if profile else ()
    return 1000 / min(costs_ms) if costs_ms else CPU_TOKENS_PER_SECOND
