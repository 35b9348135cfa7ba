"""Errors as Anthropic's clients read them."""

import pytest

from vivace.errors import ContextOverflow, ModelUnavailable, RequestRefused, StartError, VivaceError
from vivace.protocol.messages.errors import error_event, message_status
from vivace.protocol.shapes.refusal import Refusal, mistake


def refused(status: int) -> RequestRefused:
    return RequestRefused("No.", code="x", status=status)


@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [
        (refused(400), 400, "invalid_request_error"),
        (refused(415), 415, "invalid_request_error"),
        (refused(401), 401, "authentication_error"),
        (refused(403), 403, "permission_error"),
        (refused(404), 404, "not_found_error"),
        (ModelUnavailable("No."), 404, "not_found_error"),
        (refused(413), 413, "request_too_large"),
        (refused(429), 429, "rate_limit_error"),
        (mistake(), 500, "api_error"),
        (refused(502), 502, "api_error"),
        (refused(504), 504, "timeout_error"),
        (refused(503), 529, "overloaded_error"),
        (StartError("No."), 529, "overloaded_error"),
    ],
)
def test_clients_try_again_by_status_and_type(error: VivaceError, status: int, kind: str) -> None:
    """What may go away by itself is an overload there; what will not is none."""
    assert (message_status(error), error_event(error).error.type) == (status, kind)


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("90 tokens are needed, and the context holds 50.", "prompt is too long: 90 tokens > 50 maximum"),
        ("box says: too much", "prompt is too long: box says: too much"),
    ],
)
def test_a_long_prompt_is_told_in_the_words_that_clients_look_for(said: str, told: str) -> None:
    """With both numbers if they are known."""
    assert error_event(ContextOverflow(said)).error.message == told


def test_a_refusal_and_its_field() -> None:
    """There is no other place for it."""
    refusal = Refusal("It is wrong.", "Mend it.", code="x", param="messages[0].role")
    assert error_event(refusal, "req_1").request_id == "req_1"
    assert error_event(refusal).error.message == "messages[0].role: It is wrong. Mend it."
    named = Refusal("top_k is wrong.", code="x", param="top_k")
    assert error_event(named).error.message == "top_k is wrong."
