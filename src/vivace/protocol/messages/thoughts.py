"""Signatures of thoughts: a client sends its thoughts back, and only those that were thought here count.

Owns making and checking them. The key follows from the server's token, so a new token makes old signatures
worthless. A thought without a good signature is left out of the prompt; the turn goes on without it.
"""

import base64
import hashlib
import hmac

PURPOSE = b"vivace: signatures of thoughts"


class ThoughtSigner:
    def __init__(self, token: str) -> None:
        self._key = hmac.digest(token.encode(), PURPOSE, hashlib.sha256)

    def sign(self, thought: str, tenant: str) -> str:
        """Return the signature of a thought, which is good for this tenant only."""
        message = tenant.encode() + b"\0" + thought.encode("utf-8", "surrogatepass")
        return base64.b64encode(hmac.digest(self._key, message, hashlib.sha256)).decode()

    def is_ours(self, thought: str, signature: str, tenant: str) -> bool:
        given = signature.encode("utf-8", "surrogatepass")
        return hmac.compare_digest(self.sign(thought, tenant).encode(), given)
