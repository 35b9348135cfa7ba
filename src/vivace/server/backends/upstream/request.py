"""One request as an upstream is asked it, whichever API it speaks.

Owns which of our fields go along. Fields of OpenAI's own APIs always do; those that other servers
understand too (`top_k`, `min_p` …) go to any server but OpenAI's, which refuses a request for them. Hints
that change no answer are left out where they could be refused. Does not own the two bodies.
"""

from typing import Any

import msgspec

from vivace.protocol.shapes.requests import ResponseCreate
from vivace.server.backends.upstream.dialects.items import Entry
from vivace.server.backends.upstream.dialects.tools import Toolbox
from vivace.server.backends.upstream.settings import Upstream

SERVICE_TIERS = ("auto", "default", "flex", "scale", "priority")


class UpstreamRequest(msgspec.Struct, frozen=True):
    upstream: Upstream
    model: str  # as the upstream knows it
    request: ResponseCreate
    entries: list[Entry]
    toolbox: Toolbox
    is_streaming: bool = True

    def encoded(self, fields: dict[str, Any]) -> bytes:
        """Return the body, without what was not asked for (None) and what the settings omit."""
        omitted = self.upstream.omit
        return msgspec.json.encode(
            {name: value for name, value in fields.items() if value is not None and name not in omitted}
        )

    def sampling(self) -> dict[str, Any]:
        request = self.request
        known = {
            "model": self.model,
            "stream": self.is_streaming,
            "temperature": request.temperature,
            "top_p": request.top_p,
        }
        if self.upstream.is_openai:
            return known
        return known | {
            "top_k": request.top_k or None,
            "min_p": request.min_p or None,
            "repetition_penalty": request.repetition_penalty if request.repetition_penalty != 1.0 else None,
        }

    def chat_sampling(self) -> dict[str, Any]:
        """Return the fields that, at OpenAI, only the chat API has."""
        request = self.request
        return {
            "seed": request.seed,
            "presence_penalty": request.presence_penalty or None,
            "frequency_penalty": request.frequency_penalty or None,
            "logit_bias": request.logit_bias or None,
        }

    @property
    def is_parallel(self) -> bool | None:
        return self.request.parallel_tool_calls if self.toolbox.allowed else None

    @property
    def service_tier(self) -> str | None:
        return self.request.service_tier if self.request.service_tier in SERVICE_TIERS else None

    @property
    def prediction(self) -> dict[str, str] | None:
        given = self.request.prediction
        return {"type": "content", "content": given.text} if given and given.text else None
