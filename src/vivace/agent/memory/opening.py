"""From settings to a memory: which folders are looked at, and how much room a model has.

Owns that choice. A model that cannot call tools is a small one, and long rules cost it its task.
"""

from pathlib import Path

from vivace.agent.loop.opening import can_call_tools
from vivace.agent.memory.recall import LARGE_CHARS, SMALL_CHARS, Memory
from vivace.config import Settings


def memory_for(settings: Settings, folder: Path, model: str) -> Memory:
    """Return the memory for work in this folder with this model."""
    room = LARGE_CHARS if can_call_tools(settings, model) else SMALL_CHARS
    return Memory(folder, settings.state_dir, settings.config_dir, room)
