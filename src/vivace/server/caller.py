"""Who asks: a key and its tenant, or the user whose server this is.

Owns the shape only. Does not own how a caller is recognised (`transport`), nor what it may do.
"""

import msgspec

from vivace.server.store.base import Key

LOCAL = Key(id="local", name="the token of this user", tenant="", created_at=0)


class Caller(msgspec.Struct, frozen=True):
    """Who asks. KV and stored responses are shared within a tenant and never across."""

    key: str = "local"  # id of the key; "local" is the token of this user
    tenant: str = ""
    connection: str = ""  # of the WebSocket; responses with `store: false` are known on theirs only
    account: Key = LOCAL
    traceparent: str = ""  # of the trace that this is a part of
    secret_hash: bytes = b""  # of the key, to see whether it is still one; "": this user

    @property
    def is_owner(self) -> bool:
        """Return whether this is the owner, who may name model files. Keys get what is listed."""
        return self.key == LOCAL.id
