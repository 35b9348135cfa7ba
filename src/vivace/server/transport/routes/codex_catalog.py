"""A model's card in the catalog that the Codex CLI reads.

Owns the card. `use_responses_lite` makes Codex send short frames, and steer in the middle of an answer.
"""

from typing import Any

INSTRUCTIONS = """\
You are a coding agent in the user's terminal. You and the user share a folder of code.
Read before you change: look at the files that matter with the shell tool. Make the smallest change that does
what was asked, with apply_patch, and leave everything else alone. Do not guess: if a command fails, read its
output. When you are done, say in a few plain sentences what you changed.
"""
EFFORTS = {
    "low": "Answers at once",
    "medium": "Thinks a little where it helps",
    "high": "Thinks before it answers",
    "xhigh": "Takes its time",
}


def codex_card(name: str, context_window: int, rank: int) -> dict[str, Any]:
    return {
        "slug": name,
        "display_name": name,
        "description": "An open-weight model on this machine",
        "default_reasoning_level": "medium",
        "supported_reasoning_levels": [
            {"effort": effort, "description": words} for effort, words in EFFORTS.items()
        ],
        "shell_type": "shell_command",
        "visibility": "list",
        "supported_in_api": True,
        "priority": rank,
        "availability_nux": None,
        "upgrade": None,
        "base_instructions": INSTRUCTIONS,
        "support_verbosity": False,
        "default_verbosity": None,
        "apply_patch_tool_type": "freeform",
        "truncation_policy": {"mode": "tokens", "limit": min(10_000, context_window // 4)},
        "context_window": context_window,
        "experimental_supported_tools": [],
        "use_responses_lite": True,
        "input_modalities": ["text"],  # or Codex would offer to send images
    }
