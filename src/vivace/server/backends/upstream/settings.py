"""What is to be known of an upstream: its name, its URL, which API it speaks, its key and how long to wait.

Owns reading that from `[upstreams.NAME]` of the configuration file and from `--upstream NAME=URL`, and what
is wrong with either. A key is never shown: not by `repr`, not in an error. Does not connect to anything.
"""

import ipaddress
import os
import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal
from urllib.parse import SplitResult, urlsplit

import msgspec

from vivace.errors import ConfigError

NAME = r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,63}"
EXAMPLE = "For example --upstream box=http://192.168.1.5:8000/v1."

Seconds = Annotated[float, msgspec.Meta(gt=0, le=86400)]


class Upstream(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    name: str  # requests for the model NAME/MODEL go here
    url: str  # up to where /responses or /chat/completions follows
    api: Literal["auto", "responses", "chat"] = "auto"  # auto: Responses if it is there
    key_env: str | None = None  # the variable that holds the key
    api_key: str | None = None
    models: tuple[str, ...] | None = None  # None: those that it lists
    connect_s: Seconds = 5.0
    first_byte_s: Seconds = 120.0  # until it says something; reading a long prompt takes its time
    idle_s: Seconds = 60.0  # between two signs of life after that
    omit: tuple[str, ...] = ()  # fields that are never sent, for a server that refuses them

    def __repr__(self) -> str:
        return f"Upstream(name={self.name!r}, host={self.host!r}, api={self.api!r})"

    @property
    def host(self) -> str:
        """Return the host with its port, for people."""
        return _split(self.url).netloc

    @property
    def is_loopback(self) -> bool:
        name = _split(self.url).hostname or ""
        try:
            return ipaddress.ip_address(name).is_loopback
        except ValueError:
            return name == "localhost" or name.endswith(".localhost")

    @property
    def is_openai(self) -> bool:
        """Return whether it is OpenAI's own server, which refuses every field that it does not know."""
        name = _split(self.url).hostname or ""
        return name.endswith((".openai.com", ".openai.azure.com"))

    @property
    def is_secure(self) -> bool:
        return self.url.startswith("https:")

    def key(self, environ: Mapping[str, str] = os.environ) -> str:
        """Return the key, "" if none is needed. Read it for each request, so that nothing else keeps it."""
        if self.key_env and not environ.get(self.key_env, "").strip():
            raise ConfigError(
                f"The key of upstream {self.name} is missing: {self.key_env} is not set.",
                f"Export {self.key_env} where the server is started, and start it again.",
            )
        key = (environ[self.key_env] if self.key_env else self.api_key or "").strip()
        if not re.fullmatch(r"[!-~]*", key):
            raise ConfigError(
                f"The key of upstream {self.name} has characters that no key has.",
                "Check that it was copied whole, and without quotes or line breaks.",
            )
        return key


def parse_upstream(text: str) -> Upstream:
    """Parse `NAME=URL`, as given on the command line."""
    name, equals, url = text.partition("=")
    if not equals or "://" in name:
        raise ConfigError(f"An upstream is given as NAME=URL, not {_shown(text)}.", EXAMPLE)
    return _upstream(name.strip(), {"url": url.strip()}, "--upstream")


def read_upstreams(tables: Mapping[str, Any], flags: Iterable[str] = ()) -> list[Upstream]:
    """Read the upstreams of the file, then those of the command line, which may change a URL."""
    merged = {str(name): table for name, table in tables.items()}
    for given in map(parse_upstream, flags):
        table = merged.get(given.name, {})
        merged[given.name] = table | {"url": given.url} if isinstance(table, dict) else table
    return [_upstream(name, table, f"[upstreams.{name}]") for name, table in merged.items()]


def _upstream(name: str, table: Any, where: str) -> Upstream:
    if not re.fullmatch(NAME, name):
        raise ConfigError(
            f"An upstream cannot be called {_shown(name)}.",
            f"Names have up to 64 letters, digits, '_', '-' or '.'. {EXAMPLE}",
        )
    if not isinstance(table, dict):
        raise ConfigError(f"{where} is no table.", f'Write [upstreams.{name}] and under it url = "http://…".')
    try:
        upstream = msgspec.convert(table | {"name": name}, Upstream, strict=False)
    except msgspec.ValidationError as error:
        known = ", ".join(Upstream.__struct_fields__[1:])
        raise ConfigError(f"Bad setting in {where}: {error}", f"Known settings: {known}.") from error
    if upstream.key_env and upstream.api_key:
        raise ConfigError(f"{where} has two keys.", "Keep one of key_env and api_key.")
    return msgspec.structs.replace(upstream, url=_checked_url(upstream.url, where))


def _checked_url(url: str, where: str) -> str:
    try:
        parts = urlsplit(url)
        is_whole = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is no number, a bracket that is never closed
        is_whole = False
    if not is_whole or not re.fullmatch(r"[!-~]+", url) or re.search(r'[\\<>"]', url):
        raise ConfigError(f"{where} has no URL: {_shown(url)}.", EXAMPLE)
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise ConfigError(
            f"The URL of {where} holds more than an address.",
            "A key belongs into a variable that key_env names, not into the URL.",
        )
    path = parts.path.rstrip("/")
    if path.endswith(("/responses", "/chat/completions")):
        raise ConfigError(
            f"The URL of {where} ends in {path.rpartition('/v1')[2]}.", "Leave that off: it is added."
        )
    return f"{parts.scheme}://{parts.netloc}{path or '/v1'}"


def _split(url: str) -> SplitResult:
    return urlsplit(url)


def _shown(text: str) -> str:
    """Return what was given, without what may be a password in it."""
    return repr(re.sub(r"//[^/]*@", "//…@", text)[:100])
