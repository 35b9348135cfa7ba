"""What an upstream's errors mean for our client: one code and one sentence each, with whose fault it is.

Owns the translation of statuses, error bodies and broken connections. Whatever an upstream says is
shortened, and the key is taken out of it. Does not own when an error is raised.
"""

import email.utils
import re
import time
from collections.abc import Mapping
from typing import Any

import msgspec

from vivace.errors import RequestRefused
from vivace.server.backends.upstream.settings import Upstream

MAX_WORDS = 300
MAX_LOOKED_AT = 4096  # of what an upstream says, for what it means
MAX_WAIT_S = 86400.0

# The code that clients know, and that mean the same whoever says them.
KNOWN_CODES = frozenset(
    {
        "rate_limit_exceeded",
        "insufficient_quota",
        "context_length_exceeded",
        "model_not_found",
        "invalid_prompt",
        "server_is_overloaded",
    }
)
_TOO_LONG = re.compile(
    r"context[ _](length|window|size)|maximum context|exceeds? (the )?(available |model'?s? )?context"
    r"|prompt is too long|too many (input )?tokens|input is too long|reduce the length",
    re.IGNORECASE,
)

_NO_MODEL = re.compile(
    r"(invalid|unknown|no such) model|model\b.{0,200}\b(not found|(does|do|did) not exist|not exist)",
    re.IGNORECASE,
)


class UpstreamProblem(RequestRefused):
    """The upstream cannot be reached, refuses the request, or breaks its API."""


class Problems:
    """Makes the errors of one request to one upstream."""

    def __init__(self, upstream: Upstream, model: str = "", key: str = "") -> None:
        self._who = f"Upstream {upstream.name} ({upstream.host})"
        self._upstream = upstream
        self._model = model
        self._key = key

    def unreachable(self, error: BaseException | str) -> UpstreamProblem:
        why = self._quoted(str(error)) or "No connection."
        return self._problem(
            "upstream_unreachable", f"cannot be reached. {why}", "Is it running? Check its url."
        )

    def timed_out(self, waited_for: str, seconds: float) -> UpstreamProblem:
        hint = "It may be overloaded; longer times can be set for it in the configuration file."
        return self._problem("upstream_timeout", f"did not {waited_for} within {seconds:g} s.", hint)

    def broken(self, what: str) -> UpstreamProblem:
        """Return the error of an upstream that broke the protocol, or went away in the middle."""
        return self._problem("upstream_error", what)

    def status(self, status: int, headers: Mapping[str, str], body: bytes) -> UpstreamProblem:
        """Return the error of an upstream that answered with a status other than 200."""
        code, words = _read(body)
        if status == 401:  # what it says may hold a part of the key
            return self._problem("upstream_auth", "does not take our key.", self._key_hint())
        if status == 403:
            return self._problem("upstream_auth", f"forbids this. {self._quoted(words)}", self._key_hint())
        if status == 429 and code != "insufficient_quota":
            return self._busy(headers, words)
        if status in (400, 413, 422) and (code == "context_length_exceeded" or _TOO_LONG.search(words)):
            return self._problem("context_length_exceeded", f"says: {self._quoted(words)}")
        if status == 404 or (status in (400, 422) and _NO_MODEL.search(words[:MAX_LOOKED_AT])):
            said = f"has no model {self._model!r}, or nothing at this URL. {self._quoted(words)}"
            return self._problem("model_not_found", said, "Check the model's name and the upstream's url.")
        if 300 <= status < 400:
            return self._problem("upstream_error", f"answers with a redirect ({status}).", "Check its url.")
        if status >= 500:
            return self._problem("upstream_error", f"failed with status {status}. {self._quoted(words)}")
        known = code if code in KNOWN_CODES else "upstream_refused"
        return self._problem(known, f"refused with status {status}. {self._quoted(words)}")

    def reported(self, error: Any) -> UpstreamProblem:
        """Return the error that an upstream reports inside of an answer that began well."""
        code, words = _code_and_words(error)
        if code in ("429", "rate_limit_error"):
            return self._busy({}, words)
        if code not in KNOWN_CODES:
            code = "context_length_exceeded" if _TOO_LONG.search(words) else "upstream_error"
        return self._problem(code, f"failed. {self._quoted(words)}")

    def is_about_model(self, body: bytes) -> bool:
        """Return whether a 404 is about the model, not the path. A proxy may name it for both."""
        code, words = _read(body)
        missing = rf"model\W{{1,3}}{re.escape(self._model)}\W{{1,3}}(not|is|was|does|did|do|could|can)"
        return code == "model_not_found" or bool(
            self._model and re.search(missing, words[:MAX_LOOKED_AT], re.IGNORECASE)
        )

    def _busy(self, headers: Mapping[str, str], words: str) -> UpstreamProblem:
        said = f"is asked too often. {self._quoted(words)}".rstrip()
        wait_s = _retry_after_s(headers)
        if wait_s is not None and not re.search(r"try again in [\d.]+ ?m?s", words):
            said = (
                f"{said} Please try again in {round(wait_s, 3):.12g}s."  # just this is what clients look for
            )
        return self._problem("rate_limit_exceeded", said, status=429)

    def _key_hint(self) -> str:
        if self._upstream.key_env:
            return f"Check the key in {self._upstream.key_env}."
        return (
            "Check its api_key."
            if self._upstream.api_key
            else "Set key_env for it in the configuration file."
        )

    def _quoted(self, words: str) -> str:
        """Return what the upstream said, shortened and without the key."""
        if self._key:
            words = words.replace(self._key, "[key]")
        words = " ".join("".join(char if char.isprintable() else " " for char in words[:4096]).split())
        if len(self._key) >= 8 and self._key[:8] in words:  # some show a part of it
            words = ""
        if len(words) > MAX_WORDS:
            words = f"{words[:MAX_WORDS]}…"
        return words if not words or words.endswith((".", "!", "?", "…")) else f"{words}."

    def _problem(self, code: str, said: str, hint: str = "", *, status: int = 502) -> UpstreamProblem:
        return UpstreamProblem(f"{self._who} {said.strip()}", hint, code=code, status=status)


def _read(body: bytes) -> tuple[str, str]:
    """Return the code and the message of an error body, in any of their shapes."""
    try:
        found = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        text = body.decode("utf-8", "replace").strip()
        return "", "" if text.startswith("<") else text  # a web page says nothing
    if isinstance(found, list) and found:
        found = found[0]
    if isinstance(found, dict):
        return _code_and_words(found.get("error") or found)
    return "", str(found)


def _code_and_words(error: Any) -> tuple[str, str]:
    if not isinstance(error, dict):
        return "", str(error or "")
    code = error.get("code") or error.get("type") or ""
    words = error.get("message") or error.get("detail") or error.get("msg") or ""
    if isinstance(words, list | dict):
        words = msgspec.json.encode(words).decode()
    return str(code), str(words)


def _retry_after_s(headers: Mapping[str, str]) -> float | None:
    given = headers.get("retry-after-ms") or headers.get("retry-after") or ""
    try:
        wait_s = float(given) / (1000 if headers.get("retry-after-ms") else 1)
    except ValueError:
        try:
            wait_s = email.utils.parsedate_to_datetime(given).timestamp() - time.time()
        except (ValueError, OverflowError):
            return None
    return min(max(0.0, wait_s), MAX_WAIT_S) if wait_s == wait_s else None
