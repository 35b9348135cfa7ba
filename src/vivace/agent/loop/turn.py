"""One turn of a task's model: its text as it comes, its calls as each is whole, and how it ended.

Owns reading the events. A steer ends a response, and the one that follows belongs to the same turn. Does not
own what calls do (`calls`), nor what is asked next (`task`).
"""

import re
from dataclasses import dataclass, field

import msgspec

from vivace.agent.events.task import TextGrew
from vivace.agent.loop.calls import Calls, TaskPresenter
from vivace.client.turn import Turn
from vivace.protocol.shapes.events import (
    AnyEvent,
    CustomToolCall,
    FunctionCall,
    OutputItemDone,
    OutputTextDelta,
    Response,
    ResponseCompleted,
    ResponseCreated,
    ResponseIncomplete,
    SteerFailed,
)

# A call that a server could not read comes as text. These begin one, in the formats of the families.
_CALL_IN_TEXT = re.compile(r"<tool_call>(.*?)(?:</tool_call>|\Z)|<function=|<\|python_tag\|>", re.DOTALL)


@dataclass
class ModelTurn:
    calls: Calls
    presenter: TaskPresenter
    response_id: str = ""
    text: str = ""
    tokens: int = 0  # read anew and written
    log_tokens: int = 0  # of the log after it
    was_cut: bool = False  # at the limit of an answer's tokens
    given_back: list[str] = field(default_factory=list)  # steers that no response took

    async def read(self, turn: Turn) -> None:
        """Read the turn to its end."""
        async for event in turn:
            self._take(event)

    @property
    def fault(self) -> str:
        """Return what is wrong with an answer that has no call and is no answer either; "" if nothing is."""
        if len(self.calls):
            return ""
        if self.was_cut:
            return "The answer was cut off at its limit, before it had a whole call. Take smaller steps."
        return fault_in_text(self.text)

    def _take(self, event: AnyEvent) -> None:
        match event:
            case ResponseCreated(response=response):
                self.response_id, self.text = response.id, ""
            case OutputTextDelta(delta=delta):
                self.text += delta
                self.presenter.show(TextGrew(text=delta))
            case OutputItemDone(item=FunctionCall() | CustomToolCall() as item) if item.status == "completed":
                self.calls.take(item)
            case SteerFailed(steer=steer):
                self.given_back.append(str(steer.input))
            case ResponseCompleted(response=response) | ResponseIncomplete(response=response):
                self._end(response)

    def _end(self, response: Response) -> None:
        reason = response.incomplete_details.reason if response.incomplete_details else ""
        self.was_cut = reason == "max_output_tokens"
        if usage := response.usage:
            self.log_tokens = usage.total_tokens
            self.tokens += usage.total_tokens - usage.input_tokens_details.cached_tokens


def fault_in_text(text: str) -> str:
    """Return what is wrong with a call that came as text; "" if the text has none."""
    found = _CALL_IN_TEXT.search(text)
    if found is None:
        return ""
    if found[1] is None:
        return f"{found[0]!r} begins a call, and what follows is none."
    try:
        msgspec.json.decode(found[1])
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        return f"What stands in <tool_call> is not JSON: {error}."
    return "What stands in <tool_call> is no call: it needs a name and arguments, an object."
