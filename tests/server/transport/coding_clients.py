"""Requests in the shape in which coding clients send them: sizes, order and what changes as recorded.

The texts are ours. Each client builds the request of a turn from what was said so far, a folder and a day.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from tests.server.serving import fetch
from vivace.client.warm import ServerAddress

ANSWER = "Hello there."
RULES = (
    "# Rules for answers\n" + "Give each file whole, in a fence, with its name above it. " * 14
)  # 820 bytes


def text(name: str, length: int) -> str:
    """Instructions of this length, other ones for each name."""
    sentence = f"This is what {name} wants you to know, and to think of whenever you work.\n"
    return (sentence * (length // len(sentence) + 1))[:length]


def tool(name: str, length: int) -> dict[str, Any]:
    schema = {"type": "object", "properties": {"path": {"type": "string", "description": "A file."}}}
    return {"name": name, "description": text(name, length), "parameters": schema}


def tools(*names: str, length: int) -> list[dict[str, Any]]:
    return [tool(name, length) for name in names]


def functions(given: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"type": "function", "function": each} for each in given]


class Where(NamedTuple):
    folder: str = "/home/ann/shop"
    day: str = "2026-11-19"
    commit: str = "f362075 one"


class Read(NamedTuple):
    """How many tokens a prompt had, how many of them were in the KV, and how many were written."""

    prompt: int
    cached: int
    output: int


@dataclass(frozen=True)
class CodingClient:
    path: str
    body: Callable[[Where, Sequence[str]], dict[str, Any]]  # of the turn with the last of these questions
    headers: dict[str, str]
    rules_bytes: int = 0  # that it moves with each turn

    def ask(self, address: ServerAddress, model: str, where: Where, questions: Sequence[str]) -> Read:
        body = self.body(where, questions) | {"model": model}
        status, answer = fetch(address, "POST", self.path, body, **self.headers)
        assert status == 200, answer
        usage = answer["usage"]
        if "input_tokens" in usage:
            cached = usage["cache_read_input_tokens"]
            known = usage["input_tokens"] + usage["cache_creation_input_tokens"] + cached
            return Read(known, cached, usage["output_tokens"])
        cached = usage["prompt_tokens_details"]["cached_tokens"]
        return Read(usage["prompt_tokens"], cached, usage["completion_tokens"])


def _said(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def _asked(text: Any) -> dict[str, Any]:
    return {"role": "user", "content": text}


# ---- Claude Code -------------------------------------------------------------------------------------

_MARK = {"cache_control": {"type": "ephemeral"}}


def _claude(where: Where, questions: Sequence[str]) -> dict[str, Any]:
    """The billing header goes by the first question; marks move; an old question is a string."""
    system = [
        f"x-anthropic-billing-header: cc_version=2.1.197.{hash(questions[0]) % 1000}; cc_entrypoint=cli;",
        "You are an agent.",
        f"\n{text('rules', 2000)}\n\n# Memory\n\nYou have notes at `{where.folder}/.notes/`. "
        f"{text('notes', 1500)}\n\n# Environment\n - Primary working directory: {where.folder}\n\n"
        f"gitStatus: a snapshot.\n\nRecent commits:\n{where.commit}",
    ]
    reminder = {
        "type": "text",
        "text": f"<system-reminder>\nToday's date is {where.day}.\n</system-reminder>\n",
    }
    messages = [_asked([reminder, {"type": "text", "text": questions[0]}])]
    messages.append({"role": "system", "content": text("agents", 3000)})
    for question in questions[1:]:
        messages += [_said([{"type": "text", "text": ANSWER}]), _asked(question)]  # type: ignore[arg-type]
    if len(questions) > 1:
        messages[-1] = _asked([{"type": "text", "text": questions[-1]} | _MARK])
    else:
        messages[0]["content"][-1] |= _MARK
    return {
        "system": [
            {"type": "text", "text": part} | (_MARK if place else {}) for place, part in enumerate(system)
        ],
        "messages": messages,
        "tools": [
            {"name": each["name"], "description": each["description"], "input_schema": each["parameters"]}
            for each in tools(*(f"Tool{number}" for number in range(24)), length=600)
        ],
        "max_tokens": 32000,
        "thinking": {"type": "adaptive"},
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        "output_config": {"effort": "high"},
    }


# ---- over chat completions ---------------------------------------------------------------------------


def _talk(questions: Sequence[str]) -> list[dict[str, Any]]:
    messages = [_asked(questions[0])]
    for question in questions[1:]:
        messages += [_said(ANSWER), _asked(question)]
    return messages


def _opencode(where: Where, questions: Sequence[str]) -> dict[str, Any]:
    system = (
        f"You are an agent in a terminal.\n\n{text('rules', 8000)}\n\nHere is where you are:\n<env>\n"
        f"  Working directory: {where.folder}\n  Today's date: {where.day}\n</env>"
    )
    return {
        "messages": [{"role": "system", "content": system}, *_talk(questions)],
        "tools": functions(tools("bash", "edit", "read", "task", "todo", length=3000)),
        "max_tokens": 4096,
    }


def _qwen_code(where: Where, questions: Sequence[str]) -> dict[str, Any]:
    system = (
        f"You are an agent.\n\n{text('rules', 12_000)}\n\n---\n\n# notes\n\nNotes: `{where.folder}/.notes`."
    )
    first = f"This is a terminal. Today is {where.day}. The folder is {where.folder}.\n{text('files', 300)}"
    opening = [_asked(first), _said("Got it. Thanks for the context!")]
    return {
        "messages": [{"role": "system", "content": system}, *opening, *_talk(questions)],
        "tools": functions(tools("edit", "glob", "grep", "ls", "read", "write", length=2000)),
        "max_tokens": 8000,
    }


def _continue(where: Where, questions: Sequence[str]) -> dict[str, Any]:
    system = (
        f"You are an agent in a terminal.\n\n{text('notes', 500)}\n<env>\nWorking directory: {where.folder}\n"
        f'Today\'s date: {where.day}\n</env>\n\n<context name="gitStatus">{where.commit}</context>'
    )
    return {
        "messages": [{"role": "system", "content": system}, *_talk(questions)],
        "tools": functions(tools("Bash", "Edit", "List", "Read", "Search", length=900)),
    }


def _aider(where: Where, questions: Sequence[str]) -> dict[str, Any]:
    """Its rules end the newest question, and no other one."""
    examples = [
        _asked("Change add()."),
        _said(text("an example", 1500)),
        _asked(f"I have files in {where.folder}."),
    ]
    told = [*examples, _said("Ok."), *_talk(questions)]
    told[-1] = _asked(f"{questions[-1]}\n\n{RULES}")
    return {"messages": [{"role": "system", "content": text("an expert", 600)}, *told], "temperature": 0}


CHAT, MESSAGES = "/v1/chat/completions", "/v1/messages"
CLIENTS = {
    "claude-code": CodingClient(f"{MESSAGES}?beta=true", _claude, {"anthropic_version": "2023-06-01"}),
    "opencode": CodingClient(CHAT, _opencode, {"x_session_id": "ses_1"}),
    "qwen-code": CodingClient(CHAT, _qwen_code, {}),
    "continue": CodingClient(CHAT, _continue, {}),
    "aider": CodingClient(CHAT, _aider, {}, rules_bytes=len(f"\n\n{RULES}")),
}
