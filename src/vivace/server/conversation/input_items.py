"""Input items as OpenAI lists them: each whole, with an id, whatever its client left out.

Owns what is filled in. Does not own the items (`store`).
"""

from typing import Any

PREFIXES = {
    "message": "msg",
    "function_call": "fc",
    "function_call_output": "fco",
    "custom_tool_call": "ctc",
    "custom_tool_call_output": "ctco",
    "reasoning": "rs",
    "additional_tools": "at",
}


def complete_items(items: list[dict[str, Any]], response_id: str) -> list[dict[str, Any]]:
    """Return the items of a conversation, each complete and with the same id every time."""
    stem = response_id.removeprefix("resp_")
    return [_whole(item, f"{stem}{index:04x}") for index, item in enumerate(items)]


def _whole(item: dict[str, Any], stem: str) -> dict[str, Any]:
    kind = item.get("type", "message")
    whole = {"id": f"{PREFIXES.get(kind, 'item')}_{stem}", "type": kind, "status": "completed"} | item
    if kind == "message":
        whole["content"] = _parts(item)
    elif kind == "reasoning":
        whole.setdefault("summary", [])
    return whole


def _parts(item: dict[str, Any]) -> list[dict[str, Any]]:
    kind = "output_text" if item.get("role") == "assistant" else "input_text"
    content = item.get("content") or []
    parts = [{"type": kind, "text": content}] if isinstance(content, str) else content
    return [
        {"annotations": [], "logprobs": []} | part if part.get("type") == "output_text" else part
        for part in parts
    ]
