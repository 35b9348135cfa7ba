"""Responses as rows: putting one, getting one, and reading the chain that it ends.

Owns the SQL of responses and of the nodes they are made of, as functions of a connection inside a
transaction. Does not own threads or transactions (`writer`, `sqlite`), nor forgetting (`removal`).

The output is kept once, in the node: a response's JSON is kept without it, and is put together again byte for
byte. So a chain's items are read without its responses, and a deleted response leaves nothing but what those
that continue it need.
"""

import sqlite3
from typing import NamedTuple

import msgspec

from vivace.server.store.base import Log, Record
from vivace.server.store.problems import ParentGone

UNFINISHED_AT_ONCE = 32

# From a node up to the first of its chain. A recursive query is a loop with a queue: no limit on its depth.
_CHAIN = """WITH RECURSIVE chain (node, parent, depth) AS (
    SELECT node, parent, 0 FROM nodes WHERE node = ?
    UNION ALL
    SELECT nodes.node, nodes.parent, depth + 1 FROM chain CROSS JOIN nodes ON nodes.node = chain.parent
) """

# NULL where there is no log. `has_log` is the last column, so only those that have no tokens are read so far.
_TOKENS = "CASE WHEN length(tokens) > 0 OR has_log THEN tokens END"


class _Body(msgspec.Struct):
    output: msgspec.Raw = msgspec.Raw(b"")


class _Parted(NamedTuple):
    body: bytes  # the JSON without the output
    output_at: int  # where in the body the output goes
    output: bytes  # JSON list, or "" if there is none


def put(connection: sqlite3.Connection, record: Record) -> None:
    parted = _part(record.response)
    tokens = record.tokens or b""
    parts = (tokens, record.history, record.input, parted.output, record.tokens is not None)
    found = connection.execute(
        "SELECT node, responses.parent, nodes.parent FROM responses JOIN nodes USING (node) "
        "WHERE tenant = ? AND id = ?",
        (record.tenant, record.id),
    ).fetchone()
    if found is None:
        node = connection.execute(
            "INSERT INTO nodes (parent, tokens, history, input, output, has_log) VALUES (?, ?, ?, ?, ?, ?)",
            (_parent_node(connection, record), *parts),
        ).lastrowid
    else:
        node, parent, above = found
        if record.parent != parent:  # else the node stays where it is, also if its parent was deleted since
            above = _moved(connection, record, node, above)
        connection.execute(
            "UPDATE nodes SET parent = ?, tokens = ?, history = ?, input = ?, output = ?, has_log = ? "
            "WHERE node = ?",
            (above, *parts, node),
        )
    connection.execute(
        "INSERT OR REPLACE INTO responses (node, tenant, id, parent, model, created_at, status, told, "
        "output_at, body, events) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            node,
            record.tenant,
            record.id,
            record.parent,
            record.model,
            record.created_at,
            record.status,
            record.log_contents,
            parted.output_at,
            parted.body,
            record.events,
        ),
    )


def get(connection: sqlite3.Connection, response_id: str, tenant: str) -> Record | None:
    if (node := node_of(connection, response_id, tenant)) is None:
        return None
    row = connection.execute(
        "SELECT responses.parent, model, created_at, status, told, output_at, body, events, history, input, "
        f"output, {_TOKENS} FROM responses JOIN nodes USING (node) WHERE node = ?",
        (node,),
    ).fetchone()
    (
        parent,
        model,
        created_at,
        status,
        contents,
        output_at,
        body,
        events,
        history,
        input_,
        output,
        tokens,
    ) = row
    return Record(
        id=response_id,
        tenant=tenant,
        parent=parent,
        model=model,
        created_at=created_at,
        status=status,
        response=_joined(_Parted(body, output_at, output)),
        input=input_,
        history=history,
        tokens=tokens,
        log_contents=contents,
        events=events,
    )


def log(connection: sqlite3.Connection, response_id: str, tenant: str) -> Log | None:
    """Return the log of a chain. None also if a response of the chain has no log."""
    if (node := node_of(connection, response_id, tenant)) is None:
        return None
    rows = connection.execute(
        f"{_CHAIN} SELECT depth, {_TOKENS} FROM chain CROSS JOIN nodes USING (node)", (node,)
    )
    tokens = [tokens for _, tokens in sorted(rows, key=_depth, reverse=True)]
    if None in tokens:
        return None
    row = connection.execute("SELECT model, told FROM responses WHERE node = ?", (node,)).fetchone()
    return Log(model=row[0], tokens=b"".join(tokens), log_contents=row[1])


def items(connection: sqlite3.Connection, response_id: str, tenant: str) -> bytes | None:
    if (node := node_of(connection, response_id, tenant)) is None:
        return None
    rows = connection.execute(
        f"{_CHAIN} SELECT depth, history, input, output FROM chain CROSS JOIN nodes USING (node)", (node,)
    )
    lists = [each for row in sorted(rows, key=_depth, reverse=True) for each in row[1:]]
    inner = (each.strip()[1:-1].strip() for each in lists)  # a list without its brackets
    return b"[" + b",".join(each for each in inner if each) + b"]"


def end_unfinished(connection: sqlite3.Connection, why: bytes) -> int:
    """Fail some unfinished responses with the error `why`. Return fewer than asked when none are left."""
    rows = connection.execute(
        "SELECT node, body, output_at, output FROM responses JOIN nodes USING (node) "
        "WHERE status IN ('queued', 'in_progress') LIMIT ?",
        (UNFINISHED_AT_ONCE,),
    ).fetchall()
    for node, *parted in rows:
        body, output_at, _ = _part(_failed(_joined(_Parted(*parted)), why))
        connection.execute(
            "UPDATE responses SET status = 'failed', body = ?, output_at = ? WHERE node = ?",
            (body, output_at, node),
        )
    return len(rows)


def node_of(connection: sqlite3.Connection, response_id: str, tenant: str) -> int | None:
    try:
        row = connection.execute(
            "SELECT node FROM responses WHERE tenant = ? AND id = ?", (tenant, response_id)
        ).fetchone()
    except UnicodeEncodeError:  # half a surrogate pair, from a client's JSON: no id of ours
        return None
    return None if row is None else int(row[0])


def _parent_node(connection: sqlite3.Connection, record: Record) -> int | None:
    if record.parent is None:
        return None
    if (node := node_of(connection, record.parent, record.tenant)) is None:
        raise ParentGone(
            f"Response {record.parent!r} is not stored any more.", "Send the whole conversation again."
        )
    return node


def _moved(connection: sqlite3.Connection, record: Record, node: int, above: int | None) -> int | None:
    """Return the node's new parent. Note the old one for removal: nothing may need it now."""
    parent = _parent_node(connection, record)
    ancestors = connection.execute(f"{_CHAIN} SELECT node FROM chain", (parent,))
    assert node not in {ancestor for (ancestor,) in ancestors}, "a response cannot continue itself"
    if above is not None:
        connection.execute("INSERT OR IGNORE INTO unneeded VALUES (?)", (above,))
    return parent


def _depth(row: tuple[int, bytes | None]) -> int:
    return row[0]


def _part(response: bytes) -> _Parted:
    output = bytes(msgspec.json.decode(response, type=_Body).output)
    if not output.startswith(b"["):
        return _Parted(response, 0, b"")
    # Any place where these bytes stand will do: put back there, they give the same JSON.
    at = response.index(output)
    return _Parted(response[:at] + response[at + len(output) :], at, output)


def _joined(parted: _Parted) -> bytes:
    return parted.body[: parted.output_at] + parted.output + parted.body[parted.output_at :]


def _failed(response: bytes, why: bytes) -> bytes:
    fields = msgspec.json.decode(response, type=dict[str, msgspec.Raw])
    return msgspec.json.encode(fields | {"status": msgspec.Raw(b'"failed"'), "error": msgspec.Raw(why)})
