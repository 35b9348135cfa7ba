"""Which names mean which upstream, and which API it is asked over."""

import asyncio
from typing import Any

import pytest

from tests.server.backends.upstream.fake import (
    Asker,
    Call,
    Fake,
    Script,
    chat,
    chunk,
    completed,
    responses,
    says,
    until,
)
from vivace.errors import VivaceError
from vivace.protocol.shapes.requests import ResponseCreate
from vivace.server.backends.base import Backend, Turn
from vivace.server.backends.upstream import models
from vivace.server.backends.upstream.backend import UpstreamBackend
from vivace.server.backends.upstream.models import names_in
from vivace.server.backends.upstream.settings import read_upstreams
from vivace.server.caller import Caller


def lists(*names: str) -> Script:
    body = {"object": "list", "data": [{"id": name, "object": "model"} for name in names]}
    return lambda call: call.whole(200, body)


def routes(**scripts: Script) -> Script:
    """By the last part of the path; the rest is not there."""

    def script(call: Call) -> None:
        chosen = scripts.get(call.path.rsplit("/", 1)[-1])
        if chosen:
            chosen(call)
        else:
            call.whole(404, {"error": {"message": "Not Found"}})

    return script


async def test_a_prefixed_name_always_means_its_upstream(fake: Fake) -> None:
    """Whatever follows is the model's name there, slashes included."""
    fake.play(says("x"))
    async with Asker(fake, api="chat", models=[]) as box:
        assert box.backend.serves("box/org/model", Caller())
        assert not box.backend.serves("box/org/model", Caller(key="key_1")), "a key gets what is listed"
        assert not box.backend.serves("box/", Caller())
        assert not box.backend.serves("other/model", Caller())
        assert not box.backend.serves("box", Caller())
        turn = box.begin(model="box/org/model")
        assert turn.model == "box/org/model"
        await until(lambda: turn.is_over)
    assert fake.calls[-1].body["model"] == "org/model"


async def test_listed_models_have_their_bare_names(fake: Fake) -> None:
    """They are listed under both; asked for once, when it is needed."""
    fake.play(routes(models=lists("a", "org/b"), completions=says("x")))
    async with Asker(fake, api="chat") as box:
        assert not box.backend.serves("a", Caller())  # not yet known
        await box.backend.discover()
        assert box.backend.serves("a", Caller())
        assert box.backend.serves("org/b", Caller())
        assert not box.backend.serves("c", Caller())
        assert box.backend.models() == ["box/a", "box/org/b"]
        await box.backend.discover()
        assert len(fake.calls) == 1
        await box.ask(model="org/b")
    assert fake.calls[-1].body["model"] == "org/b"


async def test_models_of_the_settings_are_not_asked_for(fake: Fake) -> None:
    """They are those, and no others."""
    async with Asker(fake, models=["a"]) as box:
        box.backend.start()
        await box.backend.discover()
        assert box.backend.models() == ["box/a"]
        assert box.backend.serves("a", Caller())
        assert not box.backend.serves("b", Caller())
    assert not fake.calls


async def test_a_list_that_cannot_be_had_is_no_error(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Prefixed names work; it is asked again later; what was known before stays known."""
    monkeypatch.setattr(models, "RETRY_S", 0.0)
    monkeypatch.setattr(models, "FRESH_S", 0.0)
    bad: list[Script] = [
        lambda call: call.whole(500, {}),
        lambda call: call.whole(200, b"<html>"),
        lambda _: None,
    ]
    async with Asker(fake) as box:
        for script in bad:
            fake.play(script)
            await box.backend.discover()
            assert box.backend.models() == []
            assert box.backend.serves("box/a", Caller())
        await box.backend.discover()
        fake.play(lists("a"))
        await box.backend.discover()
        await box.backend.discover()
        assert box.backend.models() == ["box/a"]
        fake.play(bad[0])
        await box.backend.discover()
        await box.backend.discover()
        assert box.backend.serves("a", Caller())


async def test_a_list_that_hangs_is_waited_for_no_longer_than_needed(
    fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Routing never waits; whoever waits for the list waits for its limit."""
    monkeypatch.setattr(models, "ANSWER_S", 0.1)
    fake.play(lambda call: call.hang())
    async with Asker(fake) as box:
        box.backend.start()
        assert box.backend.models() == []
        await box.backend.discover()
    assert fake.calls[0].gone.wait(20)


async def test_a_shutdown_does_not_wait_for_lists(fake: Fake) -> None:
    """A request for one is dropped."""
    fake.play(lambda call: call.hang())
    box = Asker(fake)
    box.backend.start()
    await until(lambda: fake.calls)
    await box.backend.close()
    await until(fake.calls[0].gone.is_set)
    assert len(asyncio.all_tasks()) == 1


@pytest.mark.parametrize(
    ("answer", "names"),
    [
        ({"data": [{"id": "a"}, {"id": "b"}]}, ["a", "b"]),
        ({"models": [{"name": "a"}, {"slug": "b"}, {"model": "c"}]}, ["a", "b", "c"]),
        (["a", {"id": "b"}], ["a", "b"]),
        ({"data": [{"id": 5}, None, {}, {"id": "x" * 1000}, {"id": "a\nb"}, {"id": "ok"}]}, ["ok"]),
        ({"data": "no"}, []),
        (7, []),
    ],
)
def test_lists_come_in_several_shapes(answer: Any, names: list[str]) -> None:
    """What is no name is passed over."""
    assert names_in(answer) == names


async def test_the_first_upstream_that_lists_a_name_gets_it(fake: Fake) -> None:
    """In the order of the settings."""
    tables = {name: {"url": fake.url, "api": "chat", "models": ["a"]} for name in ("one", "two")}
    backend: Backend = UpstreamBackend(read_upstreams(tables), Asker(fake)._history)
    fake.play(says("x"))
    turn: Turn = backend.begin(ResponseCreate(model="a", input="hi"), "resp_1", Caller())
    assert "Broken" not in [type(outcome).__name__ async for outcome in turn.outcomes()]
    assert backend.models() == ["one/a", "two/a"]
    await backend.close()


async def test_a_name_that_nobody_has_is_refused(fake: Fake) -> None:
    """With the names of the upstreams."""
    async with Asker(fake, models=[]) as box:
        with pytest.raises(VivaceError) as caught:
            box.begin(model="c")
        assert caught.value.code == "model_not_found"
        assert "box" in caught.value.hint


async def test_responses_are_tried_first_and_chat_is_remembered(fake: Fake) -> None:
    """404 or 405: the other API, and from then on only that."""
    for status in (404, 405):
        fake.calls.clear()
        fake.play(
            routes(
                responses=lambda call, status=status: call.whole(status, {"detail": "x"}),  # type: ignore[misc]
                completions=says("x"),
            )
        )
        async with Asker(fake) as box:
            for _ in range(3):
                assert (await box.ask()).text == "x"
        paths = [call.path.removeprefix("/v1/") for call in fake.calls]
        assert paths == ["responses", *["chat/completions"] * 3]


async def test_an_upstream_with_responses_is_asked_over_them(fake: Fake) -> None:
    """Once they answered, a 404 is what it says."""
    fake.play(routes(responses=responses(completed()), completions=says("x")))
    async with Asker(fake) as box:
        await box.ask()
        fake.play(routes(completions=says("x")))
        assert (await box.ask()).broken.code == "model_not_found"
    assert {call.path for call in fake.calls} == {"/v1/responses"}


@pytest.mark.parametrize(
    "body", [{"error": {"code": "model_not_found"}}, {"error": "model 'mymodel' not found"}]
)
async def test_a_model_that_is_missing_is_no_missing_api(fake: Fake, body: Any) -> None:
    """The model's name, or the code, tells the two kinds of 404 apart."""
    fake.play(routes(responses=lambda call: call.whole(404, body), completions=says("x")))
    async with Asker(fake) as box:
        assert (await box.ask(model="box/mymodel")).broken.code == "model_not_found"
    assert [call.path for call in fake.calls] == ["/v1/responses"]


async def test_an_upstream_with_neither_is_asked_again_for_both(fake: Fake) -> None:
    """Nothing was learned: it may only be starting."""
    async with Asker(fake) as box:
        for _ in range(2):
            assert (await box.ask()).broken.code == "model_not_found"
        fake.play(routes(completions=chat(chunk({"content": "x"}, "stop"))))
        assert (await box.ask()).text == "x"
    assert len(fake.calls) == 6
