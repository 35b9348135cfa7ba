"""Colours by name: what each style of the transcript looks like in each theme, and Textual's own themes.

Owns all colours of the terminal face. A style may have a side, as in "keyword.added": the name's foreground
on the side's background. Without colour (NO_COLOR) Textual drops them, and signs and marks tell the same.
Where the locale is not UTF-8, `glyphs` makes of our signs what ASCII has.
"""

from dataclasses import dataclass
from functools import lru_cache

from rich.style import Style
from textual.theme import Theme

ASCII = str.maketrans({
    "›": ">", "•": "*", "·": "-", "…": "~", "│": "|", "╷": "+", "╵": "+", "─": "-", "✓": "y", "✗": "n",
    "↪": ">",
    "↑": "^", "↓": "v", "→": ">", "▏": "|", "█": "#", "░": ".", "●": "*", "○": "o", "⏎": "<",
})  # fmt: skip


@dataclass(frozen=True)
class Palette:
    """One theme. An empty background is the terminal's own."""

    text: str
    dim: str
    accent: str
    keyword: str
    string: str
    number: str
    comment: str
    declared: str
    type: str
    good: str
    bad: str
    background: str = ""
    panel: str = ""
    added: str = ""
    removed: str = ""


PALETTES = {
    "dark": Palette(
        text="#d7d9de", dim="#7d828c", accent="#7fb4ff", keyword="#c79bf2", string="#9fce8a",
        number="#e6b673",
        comment="#7d828c", declared="#7fb4ff", type="#e5cf87", good="#7fd08a", bad="#f07f7f",
        background="#16181d", panel="#1e2128", added="#1b3324", removed="#3a2024",
    ),
    "light": Palette(
        text="#24272d", dim="#646a74", accent="#1f5fbf", keyword="#7a3fb8", string="#2f7d32",
        number="#9a5b00",
        comment="#646a74", declared="#1f5fbf", type="#8a6d00", good="#1d7a36", bad="#b3261e",
        background="#fbfbf9", panel="#f0f0ec", added="#dcf3e0", removed="#fbe2e0",
    ),
    "terminal": Palette(
        text="default", dim="bright_black", accent="blue", keyword="magenta", string="green", number="yellow",
        comment="bright_black", declared="blue", type="cyan", good="green", bad="red",
    ),
}  # fmt: skip


_TERMINAL = {  # what Textual's own widgets need in a theme of the terminal's colours
    "ansi-background": "ansi_default", "ansi-foreground": "ansi_default", "border-blurred": "ansi_default",
    "block-cursor-foreground": "ansi_black", "block-cursor-background": "ansi_white",
    "input-cursor-background": "ansi_default", "input-cursor-foreground": "ansi_default",
    "input-cursor-text-style": "reverse",
    "input-selection-background": "ansi_bright_blue", "input-selection-foreground": "ansi_black",
    "screen-selection-background": "ansi_bright_blue", "screen-selection-foreground": "ansi_black",
}  # fmt: skip


def textual_themes() -> list[Theme]:
    return [_textual_theme(name, palette) for name, palette in PALETTES.items()]


def _textual_theme(name: str, palette: Palette) -> Theme:
    if name == "terminal":
        return Theme(
            name=name, primary="ansi_blue", foreground="ansi_default", background="ansi_default",
            surface="ansi_default", panel="ansi_default", accent="ansi_blue", ansi=True, variables=_TERMINAL,
        )  # fmt: skip
    return Theme(
        name=name, primary=palette.accent, foreground=palette.text, background=palette.background,
        surface=palette.background, panel=palette.panel, accent=palette.accent, dark=name == "dark",
    )  # fmt: skip


@lru_cache(maxsize=512)
def style(theme: str, name: str) -> Style:
    """Return the style of that name: `name`, or `name.added`, `name.removed` on a coloured ground."""
    palette = PALETTES[theme]
    base, _, side = name.partition(".")
    foreground = {
        "code": palette.text, "keyword": palette.keyword, "string": palette.string, "number": palette.number,
        "comment": palette.comment, "declared": palette.declared, "type": palette.type, "mark":
        palette.accent,
        "literal": palette.string, "rule": palette.dim, "hunk": palette.dim, "asked": palette.accent,
        "error": palette.bad, "good": palette.good, "dim": palette.dim, "struck": palette.dim,
        "user": palette.accent, "sign": palette.good if side == "added" else palette.bad,
    }.get(base, palette.text)  # fmt: skip
    ground = {"added": palette.added, "removed": palette.removed}.get(side, palette.background)
    if theme == "terminal" and side and base in ("code", "sign"):
        foreground = palette.good if side == "added" else palette.bad
    return Style(
        color=foreground,
        bgcolor=ground or "default",
        bold=base in ("bold", "asked", "mark", "sign") or None,
        strike=base == "struck" or None,
    )


@lru_cache(maxsize=64)
def foreground(theme: str, name: str) -> Style:
    """Return the style without its background: for widgets that have their own."""
    found = style(theme, name)
    return Style(color=found.color, bold=found.bold, strike=found.strike)


def glyphs(text: str, *, is_utf8: bool) -> str:
    """Return the text as this terminal can show it."""
    if is_utf8 or text.isascii():
        return text
    return text.translate(ASCII).encode("ascii", "replace").decode("ascii")
