"""Which key does what, and how the user changes it: the table `[keys]` of `config.toml`, ACTION = "KEY, KEY".

Owns the actions' names, their keys and their words for the help. Does not do them (`controls`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from vivace.errors import ConfigError

Group = Literal["prompt", "review", "conflict", "approval", "menu"]


@dataclass(frozen=True)
class Action:
    name: str
    keys: tuple[str, ...]
    help: str
    group: Group = "prompt"


ACTIONS = (
    Action("send", ("enter",), "send; while the model writes: steer it"),
    Action("queue", ("tab",), "send after the turn; complete a / or @"),
    Action("newline", ("ctrl+j", "shift+enter", "alt+enter"), "new line"),
    Action("stop", ("escape",), "stop the turn, keep what is there; twice: rewind"),
    Action("answer_now", ("ctrl+n",), "think no more, and answer"),
    Action("interrupt", ("ctrl+c",), "stop, then clear the line, then leave"),
    Action("leave", ("ctrl+d",), "on an empty line: leave; while the model writes, twice"),
    Action("earlier", ("up",), "edit a queued or an earlier message"),
    Action("later", ("down",), "back to later messages"),
    Action("search_history", ("ctrl+r",), "search what you said before"),
    Action("open_editor", ("ctrl+g",), "write the message in $EDITOR"),
    Action("background", ("ctrl+b",), "move the turn to the background; or begin what is typed there"),
    Action("next_mode", ("shift+tab",), "the next permission mode: what a task may do by itself"),
    Action("choose_model", ("alt+p",), "choose the model"),
    Action("scroll_up", ("pageup", "shift+up"), "scroll up"),
    Action("scroll_down", ("pagedown", "shift+down"), "scroll down"),
    Action("scroll_end", ("ctrl+end",), "to the end, and follow"),
    Action("details", ("ctrl+o",), "all stages of the last turn's time, whole output"),
    Action("thinking", ("ctrl+t",), "what the model thought before its last answer"),
    Action("help", ("question_mark",), "on an empty line: these keys"),
    Action("accept", ("y",), "take the change, or this hunk", "review"),
    Action("reject", ("n",), "leave it, or this hunk", "review"),
    Action("by_hunk", ("h",), "decide hunk by hunk", "review"),
    Action("edit", ("e",), "change it in $EDITOR first", "review"),
    Action("reply", ("r",), "say what should be different", "review"),
    Action("take_edit", ("m",), "take mine: the edit", "conflict"),
    Action("take_file", ("f",), "leave the file as it is now", "conflict"),
    Action("merge", ("e",), "merge both in $EDITOR", "conflict"),
    Action("stop_edit", ("s",), "write nothing", "conflict"),
    Action("allow", ("y",), "let the call run, this once", "approval"),
    Action("allow_always", ("a",), "let it run, and the same call from now on", "approval"),
    Action("refuse", ("n",), "do not let it run", "approval"),
    Action("menu_up", ("up", "ctrl+p"), "the entry above", "menu"),
    Action("menu_down", ("down", "ctrl+n"), "the entry below", "menu"),
    Action("menu_choose", ("enter", "tab"), "take the entry", "menu"),
    Action("menu_close", ("escape", "ctrl+c"), "close the list", "menu"),
)
_SHOWN = {
    "question_mark": "?",
    "escape": "Esc",
    "pageup": "PgUp",
    "pagedown": "PgDn",
    "up": "Up",
    "down": "Down",
}


class KeyMap:
    """The keys as they are with the user's changes."""

    def __init__(self, changes: Mapping[str, str]) -> None:
        known = {action.name: action for action in ACTIONS}
        if unknown := sorted(set(changes) - set(known)):
            raise ConfigError(
                f"There is no action {unknown[0]!r} for a key.", f"Actions: {', '.join(known)}."
            )
        self._keys = {name: _parsed(changes[name]) if name in changes else known[name].keys for name in known}
        self._actions: dict[tuple[Group, str], str] = {}
        for action in ACTIONS:
            for key in self._keys[action.name]:
                other = self._actions.setdefault((action.group, key), action.name)
                if other != action.name:
                    raise ConfigError(
                        f"The key {key!r} is given to {other!r} and to {action.name!r}.", "Give each its own."
                    )

    def action(self, group: Group, key: str) -> str | None:
        return self._actions.get((group, key))

    def shown(self, name: str) -> str:
        """Return the first key of an action as a person writes it."""
        return _label(self._keys[name][0]) if self._keys[name] else "-"

    def help(self) -> list[str]:
        """Return one line an action, aligned."""
        rows = [(" / ".join(map(_label, self._keys[each.name])) or "-", each) for each in ACTIONS]
        width = max(len(keys) for keys, _ in rows)
        titles = {
            "prompt": "at the prompt",
            "review": "when a change is proposed",
            "conflict": "when the file changed meanwhile",
            "approval": "when a call asks",
            "menu": "in a list",
        }
        lines: list[str] = []
        group = ""
        for keys, action in rows:
            if action.group != group:
                group = action.group
                lines += ["", titles[action.group]] if lines else [titles[action.group]]
            lines.append(f"  {keys:<{width}}  {action.help}")
        return lines


def _parsed(text: str) -> tuple[str, ...]:
    names = (
        part.strip().lower().replace("esc", "escape").replace("escapeape", "escape")
        for part in text.split(",")
    )
    return tuple("question_mark" if name == "?" else name for name in names if name)


def _label(key: str) -> str:
    parts = [_SHOWN.get(part, part.capitalize() if len(part) > 1 else part) for part in key.split("+")]
    if len(parts) > 1 and len(parts[-1]) == 1:
        parts[-1] = parts[-1].upper()
    return "+".join(parts)
