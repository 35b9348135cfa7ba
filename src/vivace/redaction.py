"""Known secrets taken out of text: tokens of common services, private keys, passwords in URLs and settings.

Owns the patterns. They find what looks like a secret by its form; a secret without a form of its own is not
found. Each pattern reads a text in linear time. Does not own what is logged.
"""

import re
from collections.abc import Mapping
from typing import Any

_PRIVATE_KEY = re.compile(r"-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----")
_KEY_ENDS = re.compile(r"-----END [A-Z ]{0,30}KEY-----")
MAX_KEY = 20_000  # characters between the two
_PATTERNS: tuple[tuple[str, str], ...] = (
    ("jwt", r"\beyJ[A-Za-z0-9_-]{10,4096}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]*"),
    ("vivace-key", r"\bvv_[A-Za-z0-9_-]{43,}"),
    ("api-key", r"\bsk-[A-Za-z0-9_-]{20,}"),  # OpenAI, Anthropic and those like them
    ("github-token", r"\b(?:gh[pousr]_[A-Za-z0-9]{30,}|github_pat_[A-Za-z0-9_]{30,})"),
    ("gitlab-token", r"\bglpat-[A-Za-z0-9_-]{20,}"),
    ("aws-key", r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"),
    ("slack-token", r"\bxox[abeprs]-[A-Za-z0-9-]{10,}"),
    ("google-key", r"\b(?:AIza[A-Za-z0-9_-]{35,}|ya29\.[A-Za-z0-9_-]{20,})"),
    ("hub-token", r"\bhf_[A-Za-z0-9]{30,}"),
    ("package-token", r"\b(?:npm_[A-Za-z0-9]{36,}|pypi-[A-Za-z0-9_-]{40,})"),
    ("payment-key", r"\b[rs]k_(?:live|test)_[A-Za-z0-9]{20,}"),
    ("mail-key", r"\bSG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}"),
    ("bearer", r"(?i)(?<=\bbearer )[A-Za-z0-9._~+/-]{16,}={0,2}"),
    ("password", r"(?<=://)[^\s:/@]{1,200}:[^\s/@]{1,200}(?=@)"),
    # A variable of a shell or a .env file, as `API_KEY=…` or `export DB_PASSWORD="…"`.
    (
        "variable",
        r"(?m)(?<=[A-Z_])(?:(?<=SECRET)|(?<=TOKEN)|(?<=PASSWORD)|(?<=PASSWD)|(?<=API_KEY)|(?<=ACCESS_KEY)"
        r"|(?<=PRIVATE_KEY))=(?![\[])[\"']?[^\s\"'$]{8,}[\"']?",
    ),
    # A setting in quotes, as `"password": "…"`.
    (
        "setting",
        r"(?i)(?<=[\w\"'])(?:(?<=password)|(?<=passwd)|(?<=secret)|(?<=api_key)|(?<=apikey)|(?<=token))"
        r"[\"']?\s{0,3}[:=]\s{0,3}[\"'](?!\[)[^\s\"']{8,}[\"']",
    ),
)
_COMPILED = tuple((kind, re.compile(pattern)) for kind, pattern in _PATTERNS)
_SECRET_NAME = re.compile(
    r"(?i)(secret|token|passw|credential|api_?key|access_?key|private_?key|auth|cookie|session)"
)
_KEPT_AS_THEY_ARE = ("variable", "setting")  # what stands before the value stays


def redact(text: str) -> str:
    """Return the text with `[redacted:KIND]` in place of every secret that is found."""
    text = _without_private_keys(text)
    for kind, pattern in _COMPILED:
        text = pattern.sub(_assigned if kind in _KEPT_AS_THEY_ARE else f"[redacted:{kind}]", text)
    return text


def _without_private_keys(text: str) -> str:
    """Return the text without keys that end, or that the text's end cuts off. Look at everything once."""
    kept, at = [], 0
    end = _KEY_ENDS.search(text)
    for begin in _PRIVATE_KEY.finditer(text):
        if begin.start() < at:
            continue
        if end and end.start() < begin.end():
            end = _KEY_ENDS.search(text, begin.end())
        if end and end.start() - begin.end() <= MAX_KEY:
            stop = end.end()
        elif len(text) - begin.end() <= MAX_KEY:
            stop = len(text)
        else:
            continue
        kept += [text[at : begin.start()], "[redacted:private-key]"]
        at = stop
    return "".join([*kept, text[at:]])


def redact_values(value: Any) -> Any:
    """Return JSON with every string in it redacted."""
    match value:
        case str():
            return redact(value)
        case dict():
            return {key: redact_values(each) for key, each in value.items()}
        case list() | tuple():  # as msgspec leaves one that a struct has
            return [redact_values(each) for each in value]
    return value


def without_secrets(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that neither have the name of a secret nor hold one."""
    return {
        name: value
        for name, value in environ.items()
        if not _SECRET_NAME.search(name) and redact(value) == value
    }


def _assigned(found: "re.Match[str]") -> str:
    """Return an assignment with its value redacted."""
    sign = re.match(r"[\"']?\s*[:=]\s*", found[0])
    assert sign is not None
    return f"{sign[0]}[redacted:value]"


# ---- text that comes in pieces ----------------------------------------------------------------------

MAX_HELD = 24_000  # characters: longer than any secret that is looked for
_LEADS = (
    *("sk-", "vv_", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "eyJ", "AKIA", "ASIA"),
    *("xox", "AIza", "ya29.", "hf_", "npm_", "pypi-", "sk_live_", "sk_test_", "rk_live_", "rk_test_", "SG."),
)
_NAMES = ("secret", "token", "password", "passwd", "api_key", "apikey", "access_key", "private_key")
MAX_WORD = 4096
_BETWEEN_WORDS = re.compile(r"[\s\"'`<>(),;\[\]{}]")
_KEY_BEGINS = re.compile(r"-----BEGIN [A-Z ]{0,40}(?:-----|-{0,4}\Z)")
# What may go on to be a secret although it has blanks in it, at the end of a text.
_OPEN = re.compile(
    r"(?<![A-Z-])-{1,5}(?:B|BE|BEG|BEGI|BEGIN)?\Z"
    r"|(?i:\bb(?:e(?:a(?:r(?:e(?:r(?: [A-Za-z0-9._~+/-]{0,4096}={0,2})?)?)?)?)?)?\Z)"
    r"|(?i:(?:secret|token|password|passwd|api_?key|access_key|private_key)"
    r"[\"']?\s{0,3}(?:[:=]\s{0,3}(?:[\"'][^\s\"']{0,4096}|[^\s\"']{0,4096})?)?\Z)"
)


class RedactedStream:
    """Text that comes in pieces, given on without secrets though one is cut between two pieces.

    Only an end that may be the beginning of a secret is held back, until it is known.
    """

    def __init__(self) -> None:
        self._held = ""

    def grow(self, text: str) -> str:
        """Return what can be given on now."""
        whole = self._held + text
        cut = _begin_of_open(whole)
        if len(whole) - cut > MAX_HELD:
            cut = len(whole)
        self._held = whole[cut:]
        return redact(whole[:cut])

    def end(self) -> str:
        """Return the rest: nothing more comes."""
        held, self._held = self._held, ""
        return redact(held)


def _begin_of_open(text: str) -> int:
    """Return where the end of a text begins that may go on to be a secret; its length if nothing may."""
    begins = [len(text)]
    if found := _OPEN.search(text, max(0, len(text) - MAX_WORD)):
        begins.append(found.start())
    key = text.rfind("-----BEGIN ")
    if key >= 0 and _KEY_BEGINS.match(text, key) and not _KEY_ENDS.search(text, key):
        begins.append(key)
    tail = text[-MAX_WORD:]
    ends = [found.end() for found in _BETWEEN_WORDS.finditer(tail)]
    if word := tail[ends[-1] if ends else 0 :]:
        begins += [len(text) - _overlap(word.lower(), name) for name in _NAMES]
        begins += [len(text) - len(word)] if _may_be_secret(word) else []
    return min(begins)


def _may_be_secret(word: str) -> bool:
    """Return whether a secret stands in the word, or may stand there when it goes on."""
    if "://" in word or word.endswith((":", ":/")):
        return True
    return any(lead in word or _overlap(word, lead) for lead in _LEADS)


def _overlap(word: str, begun: str) -> int:
    """Return how many characters at the end of the word are the beginning of another, which is not whole."""
    return next((n for n in range(len(begun) - 1, 0, -1) if word.endswith(begun[:n])), 0)
