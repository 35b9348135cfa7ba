"""What upstreams are set to, and what is wrong with a setting."""

import re
import tomllib

import pytest

from tests import REPOSITORY
from vivace.errors import ConfigError
from vivace.server.backends.upstream.settings import Upstream, parse_upstream, read_upstreams


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("box=http://gpu:8000/v1", "http://gpu:8000/v1"),
        ("box=http://gpu:8000/v1/", "http://gpu:8000/v1"),
        ("box=http://127.0.0.1:11434", "http://127.0.0.1:11434/v1"),
        ("box=https://a.example/api/openai", "https://a.example/api/openai"),
        (" box = http://[::1]:8000/v1 ", "http://[::1]:8000/v1"),
    ],
)
def test_a_flag_names_an_upstream(text: str, url: str) -> None:
    """NAME=URL; a URL without a path gets the usual one."""
    upstream = parse_upstream(text)
    assert (upstream.name, upstream.url, upstream.api) == ("box", url, "auto")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("http://gpu:8000", "NAME=URL"),
        ("box", "NAME=URL"),
        ("a/b=http://gpu", "called 'a/b'"),
        ("=http://gpu", "called ''"),
        ("box=gpu:8000", "no URL"),
        ("box=ftp://gpu", "no URL"),
        ("box=http://", "no URL"),
        ("box=http://gpu:port", "no URL"),
        ("box=http://[::1", "no URL"),
        ("box=http://g pu", "no URL"),
        ("box=http://gpü/v1", "no URL"),
        ("box=http://gpu/v1\r\nX: y", "no URL"),
        ("box=http://gpu/v1?key=hush", "more than an address"),
        ("box=http://me:hush@gpu/v1", "more than an address"),
        ("box=http://gpu/v1/chat/completions", "ends in /chat/completions"),
        ("box=http://gpu/v1/responses/", "ends in /responses"),
    ],
)
def test_a_wrong_flag_is_told_what_is_wrong(text: str, said: str) -> None:
    """One sentence that names it, a hint, and no password."""
    with pytest.raises(ConfigError) as caught:
        parse_upstream(text)
    assert said in caught.value.message
    assert caught.value.hint
    assert "hush" not in caught.value.message + caught.value.hint


def test_the_file_says_more() -> None:
    """All fields can be set there, and a flag gives a known name another URL."""
    table = {
        "url": "http://a/v1",
        "api": "chat",
        "key_env": "K",
        "models": ["m"],
        "idle_s": 5,
        "omit": ["seed"],
    }
    box, other = read_upstreams({"box": table}, ["box=http://b/v1", "other=http://c/v1"])
    assert (box.url, box.api, box.key_env, box.models, box.idle_s) == (
        "http://b/v1",
        "chat",
        "K",
        ("m",),
        5.0,
    )
    assert (other.name, other.url) == ("other", "http://c/v1")


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({}, "url"),
        ({"url": "http://a", "modles": []}, "modles"),
        ({"url": "http://a", "api": "soap"}, "api"),
        ({"url": "http://a", "idle_s": 0}, "idle_s"),
        ({"url": "http://a", "key_env": "K", "api_key": "hush"}, "two keys"),
        ("http://a", "no table"),
    ],
)
def test_a_wrong_table_is_told_what_is_wrong(table: object, said: str) -> None:
    """The place and the field, and never the key."""
    with pytest.raises(ConfigError) as caught:
        read_upstreams({"box": table})
    assert said in caught.value.message
    assert "hush" not in caught.value.message + caught.value.hint


def test_a_key_is_never_shown() -> None:
    """Not by repr, which is what logs and tracebacks use."""
    (box,) = read_upstreams({"box": {"url": "http://a", "api_key": "hush-hush"}})
    assert "hush" not in f"{box} {box!r} {[box]}"
    assert box.key() == "hush-hush"


def test_a_key_comes_from_the_variable_that_is_named() -> None:
    """A line end behind it is no part of it; a variable that is not set is an error that names it."""
    (box,) = read_upstreams({"box": {"url": "http://a", "key_env": "BOX_KEY"}})
    assert box.key({"BOX_KEY": "hush\n"}) == "hush"
    for environ in ({}, {"BOX_KEY": " "}):
        with pytest.raises(ConfigError, match="BOX_KEY"):
            box.key(environ)


@pytest.mark.parametrize("key", ["hush\nX: y", "hu sh", "hüsh", "hush\x00"])
def test_a_key_that_is_none_is_refused_unseen(key: str) -> None:
    """No header can be smuggled in, and the error does not show it."""
    (box,) = read_upstreams({"box": {"url": "http://a", "api_key": key}})
    with pytest.raises(ConfigError) as caught:
        box.key()
    assert "sh" not in caught.value.message.split("box", 1)[1]


@pytest.mark.parametrize(
    ("url", "is_loopback", "is_openai"),
    [
        ("http://127.0.0.1:1/v1", True, False),
        ("http://127.8.0.1:1/v1", True, False),
        ("http://[::1]:1/v1", True, False),
        ("http://localhost:1/v1", True, False),
        ("http://127.evil.example/v1", False, False),
        ("http://10.0.0.1/v1", False, False),
        ("https://api.openai.com/v1", False, True),
        ("https://api.openai.com.example/v1", False, False),
        ("https://me.openai.azure.com/openai/v1", False, True),
    ],
)
def test_hosts_are_known(url: str, *, is_loopback: bool, is_openai: bool) -> None:
    """Which are of this machine, and which are OpenAI's own."""
    upstream = parse_upstream(f"box={url}")
    assert (upstream.is_loopback, upstream.is_openai) == (is_loopback, is_openai)


def test_the_guide_shows_settings_that_are_taken() -> None:
    """And names every one that there is."""
    guide = (REPOSITORY / "docs" / "guides" / "upstreams.md").read_text("utf-8")
    examples = "".join(re.findall(r"```toml\n(.*?)```", guide, re.DOTALL))
    (upstream,) = read_upstreams(tomllib.loads(examples)["upstreams"])
    assert upstream.name == "box"
    settings = set(Upstream.__struct_fields__) - {"name"}
    assert settings <= set(re.findall(r"`(\w+)`", guide))
