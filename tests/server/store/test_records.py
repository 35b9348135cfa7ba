"""What is put into the store comes back as it was, to its tenant only, and its chain in order."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from tests.server.store.making import as_json, assert_sound, count, item, make, opened, packed, texts, until
from vivace.server.store.base import Store
from vivace.server.store.problems import ParentGone


def is_in(path: Path, text: str) -> bool:
    return text.encode() in path.read_bytes()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "kept" / "store.db"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[Store]:
    async with opened(path) as store:
        yield store


async def test_a_record_comes_back_as_it_was(store: Store) -> None:
    """Every field, byte for byte."""
    record = make(
        parent=None,
        history=as_json([item("before")]),
        events=b'{"type":"response.created"}\n',
        created_at=2**40,
    )
    await store.put(record)
    assert await store.get("resp_1", "alice") == record


@pytest.mark.parametrize(
    "response",
    [
        b'{"output":[]}',
        b'{"tools":[],"output":[]}',
        b'{"output":null,"id":"a"}',
        b"{}",
        b' { "tools" : [ ] , "output" : [ {"a": [ ] } ] } ',
        b'{"a":"[1]","output":[1],"b":"[1]"}',
        '{"output":[{"text":"\u00e9\U0001f600\\u0000"}]}'.encode(),
    ],
)
async def test_any_json_of_a_response_comes_back_byte_for_byte(store: Store, response: bytes) -> None:
    """Also where the output is empty, missing, or its bytes stand elsewhere too."""
    await store.put(make(response=response))
    record = await store.get("resp_1", "alice")
    assert record is not None
    assert record.response == response
    output = json.loads(response).get("output") or []
    assert json.loads(await store.items("resp_1", "alice") or b"") == [item("hi"), *output]


async def test_a_response_that_is_no_json_is_refused(store: Store) -> None:
    """And it is refused alone: the store goes on."""
    with pytest.raises(msgspec.DecodeError):
        await store.put(make(response=b"{"))
    await store.put(make("next"))
    assert await store.get("resp_1", "alice") is None
    assert await store.get("next", "alice") is not None


async def test_put_over_an_id_updates_it(store: Store, path: Path) -> None:
    """A background response is put when it begins and when it ends: there is one."""
    await store.put(make(status="in_progress", says=[], tokens=packed(1)))
    ended = make(says=["done"], tokens=packed(1, 2), events=b"{}\n")
    await store.put(ended)
    assert await store.get("resp_1", "alice") == ended
    assert (count(path, "responses"), count(path, "nodes")) == (1, 1)


async def test_another_tenants_response_is_not_there(store: Store) -> None:
    """The same id in two tenants is two responses; neither can be read, continued or deleted by the other."""
    await store.put(make(says=["to alice"]))
    assert await store.get("resp_1", "bob") is None
    assert await store.log("resp_1", "bob") is None
    assert await store.items("resp_1", "bob") is None
    assert not await store.delete("resp_1", "bob")
    with pytest.raises(ParentGone):
        await store.put(make("resp_2", tenant="bob", parent="resp_1"))
    await store.put(make(tenant="bob", says=["to bob"]))
    assert texts(await store.items("resp_1", "alice")) == ["hi", "to alice"]
    assert texts(await store.items("resp_1", "bob")) == ["hi", "to bob"]


async def test_a_chain_is_read_in_order(store: Store) -> None:
    """Tokens and items of every response, from the first on; what the log tells is the last one's."""
    await store.put(make("a", asks=["1"], says=["2"], tokens=packed(1), history=as_json([item("0")])))
    await store.put(make("b", parent="a", asks=["3"], says=["4", "5"], tokens=packed(2, 3)))
    await store.put(
        make("c", parent="b", asks=[], says=["6"], tokens=packed(4), log_contents=b'{"tools":[]}')
    )
    log = await store.log("c", "alice")
    assert log is not None
    assert (log.model, log.tokens, log.log_contents) == ("qwen", packed(1, 2, 3, 4), b'{"tools":[]}')
    assert texts(await store.items("c", "alice")) == ["0", "1", "2", "3", "4", "5", "6"]
    assert texts(await store.items("b", "alice")) == ["0", "1", "2", "3", "4", "5"]


async def test_forks_share_what_is_before_them(store: Store, path: Path) -> None:
    """Two that continue the same response, each with its own end; the beginning is kept once."""
    await store.put(make("a", asks=["1"], says=["2"], tokens=packed(1)))
    await store.put(make("b", parent="a", asks=["left"], says=[], tokens=packed(2)))
    await store.put(make("c", parent="a", asks=["right"], says=[], tokens=packed(3)))
    assert texts(await store.items("b", "alice")) == ["1", "2", "left"]
    assert texts(await store.items("c", "alice")) == ["1", "2", "right"]
    assert count(path, "nodes") == 3


async def test_a_chain_of_thousands_is_read_and_forgotten(store: Store, path: Path) -> None:
    """No recursion limit anywhere; when the last response goes, all that it needed goes too."""
    length = 3000
    await store.put(make("r0", tokens=packed(0)))
    for number in range(1, length):
        await store.put(make(f"r{number}", parent=f"r{number - 1}", tokens=packed(number), created_at=1))
    last = f"r{length - 1}"
    await store.put(make(last, parent=f"r{length - 2}", tokens=packed(length - 1), created_at=2000))
    assert await store.sweep(2000) == length - 1
    log = await store.log(last, "alice")
    assert log is not None
    assert log.tokens == packed(*range(length))
    assert len(json.loads(await store.items(last, "alice") or b"")) == 2 * length
    assert (count(path, "responses"), count(path, "nodes")) == (1, length)
    assert await store.delete(last, "alice")
    until(lambda: count(path, "nodes") == 0)
    assert count(path, "unneeded") == 0


async def test_an_upstreams_response_has_no_log(store: Store) -> None:
    """Nor has what continues it: its text is not in the tokens. Items are there all the same."""
    await store.put(make("a", tokens=packed(1)))
    await store.put(make("b", parent="a", tokens=None))
    await store.put(make("c", parent="b", tokens=packed(2)))
    assert await store.log("b", "alice") is None
    assert await store.log("c", "alice") is None
    assert await store.log("a", "alice") is not None
    assert len(texts(await store.items("c", "alice"))) == 6


async def test_a_response_that_adds_no_tokens_is_part_of_the_log(store: Store) -> None:
    """A warm-up without a word, at the beginning of a chain or in it: the log is what the others added."""
    await store.put(make("a", tokens=b""))
    await store.put(make("b", parent="a", tokens=packed(1)))
    await store.put(make("c", parent="b", tokens=b""))
    await store.put(make("d", parent="c", tokens=packed(2)))
    for response_id, tokens in {"a": b"", "b": packed(1), "c": packed(1), "d": packed(1, 2)}.items():
        log = await store.log(response_id, "alice")
        assert log is not None
        assert log.tokens == tokens


async def test_a_log_may_come_later(store: Store) -> None:
    """A background response is put when it begins, without a log, and again when it has one."""
    await store.put(make("a", tokens=None, status="queued"))
    assert await store.log("a", "alice") is None
    await store.put(make("a", tokens=b""))
    log = await store.log("a", "alice")
    assert log is not None
    assert log.tokens == b""


async def test_deleting_keeps_what_others_need(store: Store, path: Path) -> None:
    """The response is gone at once, the log and the items of those that continue it are whole."""
    await store.put(make("a", asks=["1"], says=["2"], tokens=packed(1)))
    await store.put(make("b", parent="a", asks=["3"], says=["4"], tokens=packed(2)))
    assert await store.delete("a", "alice")
    assert not await store.delete("a", "alice")
    assert await store.get("a", "alice") is None
    assert await store.items("a", "alice") is None
    assert texts(await store.items("b", "alice")) == ["1", "2", "3", "4"]
    assert count(path, "nodes") == 2
    assert await store.delete("b", "alice")
    assert (count(path, "responses"), count(path, "nodes"), count(path, "unneeded")) == (0, 0, 0)


async def test_a_parent_may_be_deleted_while_its_child_runs(store: Store) -> None:
    """The child was put when it began, so it can be put when it ends; one that begins now is refused."""
    await store.put(make("a", asks=["1"], says=["2"], tokens=packed(1)))
    await store.put(make("b", parent="a", status="in_progress", asks=["3"], says=[], tokens=packed(2)))
    assert await store.delete("a", "alice")
    await store.put(make("b", parent="a", asks=["3"], says=["4"], tokens=packed(2, 3)))
    assert texts(await store.items("b", "alice")) == ["1", "2", "3", "4"]
    with pytest.raises(ParentGone) as raised:
        await store.put(make("c", parent="a"))
    assert raised.value.code == "previous_response_not_found"


async def test_a_response_may_leave_its_parent(store: Store, path: Path) -> None:
    """Put again with a whole log of its own, it needs the parent no more; it cannot continue itself."""
    await store.put(make("a", tokens=packed(1)))
    await store.put(make("b", parent="a", tokens=packed(2)))
    await store.put(make("b", parent=None, tokens=packed(7, 8)))
    log = await store.log("b", "alice")
    assert log is not None
    assert log.tokens == packed(7, 8)
    assert await store.delete("a", "alice")
    until(lambda: count(path, "nodes") == 1)
    await store.put(make("c", parent="b"))
    for parent in ("b", "c"):
        with pytest.raises(AssertionError):
            await store.put(make("b", parent=parent))


async def test_a_response_that_moves_lets_its_old_parent_go(store: Store, path: Path) -> None:
    """The old parent was deleted before and was kept for this one only."""
    await store.put(make("a", tokens=packed(1)))
    await store.put(make("b", parent="a", tokens=packed(2)))
    await store.delete("a", "alice")
    assert count(path, "nodes") == 2
    await store.put(make("b", parent=None, tokens=packed(1, 2)))
    until(lambda: count(path, "nodes") == 1)


async def test_sweeping_deletes_what_is_old(store: Store, path: Path) -> None:
    """Of all tenants, more than fit into one batch, and only those before the time."""
    for number in range(100):
        await store.put(make(f"r{number}", tenant=f"t{number % 3}", created_at=number))
    assert await store.sweep(70) == 70
    assert await store.sweep(70) == 0
    until(lambda: count(path, "nodes") == 30)
    assert await store.get("r69", "t0") is None
    assert await store.get("r70", "t1") is not None


async def test_what_was_unfinished_has_failed(store: Store) -> None:
    """After a crash: queued and running responses end as failed, with the reason and what was said so far."""
    for number in range(40):
        status = "queued" if number % 2 else "in_progress"
        await store.put(make(f"r{number}", status=status, says=["so far"]))
    done = make("done")
    await store.put(done)
    assert await store.end_unfinished(b'{"code":"server_error","message":"The server stopped."}') == 40
    assert await store.end_unfinished(b"{}") == 0
    record = await store.get("r7", "alice")
    assert record is not None
    response = json.loads(record.response)
    assert (record.status, response["status"]) == ("failed", "failed")
    assert response["error"] == {"code": "server_error", "message": "The server stopped."}
    assert response["output"] == [item("so far")]
    assert list(response) == list(json.loads(done.response))
    assert await store.get("done", "alice") == done


@pytest.mark.parametrize("name", ["", "\ud800", "a\0b", "' OR 1=1 --", "x" * 100_000])
async def test_ugly_ids_are_just_not_there(store: Store, name: str) -> None:
    """Whatever a client calls a response, the answer is that it is not there."""
    await store.put(make())
    for tenant, response_id in (("alice", name), (name, "resp_1")):
        assert await store.get(response_id, tenant) is None
        assert await store.log(response_id, tenant) is None
        assert await store.items(response_id, tenant) is None
        assert not await store.delete(response_id, tenant)
    with pytest.raises(ParentGone):
        await store.put(make("child", parent=name))


async def test_what_was_deleted_is_not_in_the_file(path: Path) -> None:
    """Deleted text is overwritten, not only unlinked."""
    secret = "the secret of the golden fish"
    async with opened(path) as store:
        await store.put(make("a", says=[secret] * 1000))
        await store.put(make("b", says=["other"] * 1000))
    assert is_in(path, secret)
    async with opened(path) as store:
        await store.delete("a", "alice")
    assert not is_in(path, secret)
    assert_sound(path)
