"""Secrets that have a form are found in any text; other text stays as it is."""

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vivace.redaction import redact, redact_values, without_secrets

# Put together here, so that no scanner takes this file for a leak.
BODY = "aB3dE5gH7jK9mN1pQ3sT5vW7yZ9bC1dE3fG5"
SECRETS = [
    "sk-" + BODY,
    "sk-ant-" + BODY,
    "gh" + "p_" + BODY,
    "github" + "_pat_" + BODY,
    "glpat" + "-" + BODY[:20],
    "AK" + "IA" + "ABCDEFGHIJKLMNOP",
    "xox" + "b-" + BODY,
    "AI" + "za" + BODY[:35],
    "hf" + "_" + BODY,
    "np" + "m_" + BODY[:36],
    "sk" + "_live_" + BODY,
    "eyJ" + BODY + ".eyJ" + BODY + "." + BODY,
    "-----BEGIN RSA PRIVATE KEY-----\n" + BODY + "\n-----END RSA PRIVATE KEY-----",
]
plain = st.text(st.characters(whitelist_categories=["Ll", "Zs"], max_codepoint=0x7F), max_size=40)


@given(before=plain, after=plain, secret=st.sampled_from(SECRETS))
def test_a_known_secret_is_not_in_what_remains(before: str, after: str, secret: str) -> None:
    """Whatever stands around it stays; the secret itself does not, nor most of it."""
    redacted = redact(f"{before} {secret} {after}")
    assert secret not in redacted
    assert BODY[:20] not in redacted
    assert redacted.startswith(f"{before} ")
    assert redacted.endswith(f" {after}")


@given(st.text(max_size=200))
def test_twice_is_as_once(text: str) -> None:
    """What is redacted has nothing more to redact."""
    assert redact(redact(text)) == redact(text)


@given(st.lists(st.sampled_from([*SECRETS, "API_KEY=", "password: ", '"', "\n", "x", "https://a:b@c/"])))
def test_secrets_side_by_side_are_redacted_once(parts: list[str]) -> None:
    """Joined in any order, one pass finds all that a second would."""
    once = redact("".join(parts))
    assert redact(once) == once


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("DB_PASSWORD=correct-horse", "DB_PASSWORD=[redacted:value]"),
        ("export API_KEY='abcdefgh1'", "export API_KEY=[redacted:value]"),
        ('{"password": "abcdefgh1"}', '{"password": [redacted:value]}'),
        ("git clone https://me:secret1@host/x", "git clone https://[redacted:password]@host/x"),
        ("Authorization: Bearer abcdefghij0123456", "Authorization: Bearer [redacted:bearer]"),
    ],
)
def test_a_value_is_redacted_and_its_name_stays(text: str, expected: str) -> None:
    """Who reads a log still sees which setting it was."""
    assert redact(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "token = next_token()",
        "def password(self) -> str:",
        "the secret of speed",
        "a.b@c.org",
        "PATH=/usr/bin",
    ],
)
def test_code_that_only_speaks_of_secrets_stays(text: str) -> None:
    """Names alone are no secrets."""
    assert redact(text) == text


def test_every_string_of_a_json_value_is_redacted() -> None:
    """However deep it is."""
    assert redact_values({"a": [SECRETS[0], 1, {"b": SECRETS[2]}]}) == {
        "a": ["[redacted:api-key]", 1, {"b": "[redacted:github-token]"}]
    }


@pytest.mark.parametrize(
    "begin", ["-----BEGIN PRIVATE KEY-----", "eyJ", "sk-", "://a:", "API_KEY=", "bearer ", 'password":"']
)
def test_hostile_text_costs_what_any_text_does(begin: str) -> None:
    """Beginnings of secrets without end take about as long as a program of that length, not 36 times."""

    def cpu_s(piece: str) -> float:
        text, times = piece * (60_000 // len(piece)), []
        for _ in range(2):
            begun = time.process_time()
            redact(text)
            times.append(time.process_time() - begun)
        return min(times)

    assert cpu_s(begin) < 6 * cpu_s("a line of a program = 12;\n")


BEGIN, END = "-----BEGIN %sPRIVATE KEY-----", "-----END %sPRIVATE KEY-----"
PIECES = [
    BEGIN % "",
    BEGIN % "RSA ",
    END % "",
    END % "RSA ",
    "-----END ",
    "KEY-----",
    "x" * 9_990,
    "y" * 11,
    "\n",
]


@given(st.lists(st.sampled_from(PIECES), max_size=12))
def test_a_key_goes_to_its_end_or_to_the_texts(pieces: list[str]) -> None:
    """Up to 20,000 characters long; as one expression says it, which takes too long for a hostile text."""
    text = "".join(pieces)
    key = r"-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----[\s\S]{0,20000}?(?:-----END [A-Z ]{0,30}KEY-----|\Z)"
    assert redact(text) == re.sub(key, "[redacted:private-key]", text)


def test_variables_that_may_be_secret_are_left_out() -> None:
    """By their name, or by what they hold."""
    environ = {"PATH": "/bin", "GITHUB_TOKEN": "x", "db_password": "y", "OTHER": SECRETS[0], "LANG": "C"}
    assert without_secrets(environ) == {"PATH": "/bin", "LANG": "C"}
