"""Colours of the browser app: text can be read on what it stands on, dark and light."""

import re

from tests import REPOSITORY

CSS = REPOSITORY / "web" / "src" / "app.css"
READABLE = 4.5  # contrast for small text, by WCAG 2.1 AA
SYNTAX = ("keyword", "string", "comment", "number", "function", "type", "property")
TEXTS = ("text", "dim", "accent", "green", "red", "yellow", *(f"code-{name}" for name in SYNTAX))


def palettes() -> dict[str, dict[str, str]]:
    """Return the colours of both themes, by name."""
    css = CSS.read_text()
    blocks = {
        "light": css[css.index(":root {") : css.index(":root[data-theme=")],
        "dark": css[css.index(':root[data-theme="dark"]') : css.index("@media (prefers-color-scheme")],
    }
    found = re.compile(r"--([\w-]+): (#[0-9a-f]{6})\b(?![0-9a-f])")
    return {theme: dict(found.findall(block)) for theme, block in blocks.items()}


def luminance(colour: str) -> float:
    def linear(channel: float) -> float:
        return channel / 12.92 if channel <= 0.04045 else ((channel + 0.055) / 1.055) ** 2.4

    red, green, blue = (linear(int(colour[at : at + 2], 16) / 255) for at in (1, 3, 5))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    lighter, darker = sorted((luminance(one), luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def test_text_can_be_read_on_its_ground() -> None:
    """Every colour of text has the contrast that small text needs, on the ground and on panels."""
    for theme, colours in palettes().items():
        for text in TEXTS:
            for ground in ("ground", "panel"):
                reached = contrast(colours[text], colours[ground])
                assert reached >= READABLE, f"{theme}: {text} on {ground} has {reached:.2f}"
        assert contrast(colours["on-accent"], colours["accent-ground"]) >= READABLE, theme


def test_the_systems_dark_is_the_chosen_dark() -> None:
    """A dark system has the same colours as the switch, which CSS has to be told twice."""
    css = CSS.read_text()
    chosen = css[css.index(':root[data-theme="dark"] {') : css.index("@media (prefers-color-scheme")]
    system = css[css.index(':root[data-theme="auto"] {') : css.index("/* ---- the ground")]
    declared = re.compile(r"--[\w-]+: [^;]+;")
    assert declared.findall(chosen) == declared.findall(system)
