"""Clients and a backend that do anything in any order, against a simple reference of a connection.

The reference knows which request runs or is answered next. The rest are laws, checked on whatever is done:
one terminal event a turn, numbers without a gap, no steer lost, nothing forgotten that is needed, silence
after the end.
"""

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.protocol.connection.reference import Reference, Seen, Steered, Turn
from tests.protocol.parts import (
    CALL,
    DONE,
    FAILED,
    INTERRUPTED,
    LENGTH,
    NOT_FOUND,
    STEERED,
    Talk,
    cancel,
    create,
    interrupt,
    steer,
    wire,
)
from tests.thorough import examples
from vivace.protocol.connection.actions import Action, Cancel, Close, Commit, Forget, Send, Start
from vivace.protocol.connection.lanes import MAX_IN_FLIGHT
from vivace.protocol.shapes.events import InterruptAccepted, SteerAccepted, SteerFailed, SteerPending
from vivace.protocol.shapes.outcomes import Outcome, Queued, TextDelta
from vivace.protocol.shapes.refusal import ErrorFrame

LANES: list[str | None] = [None, *(f"lane{number}" for number in range(18))]
SOME_LANES = st.sampled_from(LANES[:3]) | st.sampled_from(LANES)
SELDOM = st.integers(0, 29).map(lambda number: number == 7)  # 0 would be tried too often


class AnyOrder(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.talk = Talk()
        self.reference = Reference()
        self.turns: dict[str, Turn] = {}
        self.steers: dict[str, Steered] = {}
        self.lanes_used: list[str | None] = [None]
        self.tickets = 0
        self.named: dict[str, str] = {}  # what each request that has not begun goes on from, by ticket
        self.forgotten: set[str] = set()
        self.is_over = False
        self.is_leaving = False
        self.close_code = 0

    # ---- what is done -----------------------------------------------------------------------------

    @rule(
        lane=SOME_LANES,
        is_good=st.integers(0, 9).map(bool),
        is_stored=st.booleans(),
        kind=st.sampled_from(["new", "new", "continue", "fork", "type"]),
        pick=st.integers(0, 1000),
    )
    def create(self, lane: str | None, is_good: bool, is_stored: bool, kind: str, pick: int) -> None:
        ended = [each for each, turn in self.turns.items() if turn.end]
        mine = [each for each in ended if self.turns[each].lane == lane]
        previous = None
        if kind in ("continue", "type") and mine:
            previous = mine[-1 - pick % min(len(mine), 2)]
        elif kind == "fork" and ended:
            previous = ended[pick % len(ended)]
        fields: dict[str, Any] = {"store": is_stored, "temperature": 0 if is_good else 9}
        if kind == "type":
            fields |= {"generate": False, "is_provisional": True}
        self.say_create(lane, previous, is_good=is_good, **fields)

    @rule(pick=st.integers(0, 1000), is_typing=SELDOM)
    def answer(self, pick: int, is_typing: bool) -> None:
        """Tool outputs, for which steers wait or will wait."""
        steered = {each.parent for each in self.steers.values() if not each.fate and not each.carrier}
        if parent := self.pick(sorted(steered), pick):
            fields = {"generate": False, "is_provisional": True} if is_typing else {}
            self.say_create(self.turns[parent].lane, parent, is_good=True, **fields)

    @rule(stored=st.booleans())
    def flood(self, stored: bool) -> None:
        """A request in every lane, so that all places are taken."""
        for lane in LANES:
            self.say_create(lane, None, is_good=True, store=stored)

    @rule(lane=SOME_LANES)
    def pile(self, lane: str | None) -> None:
        """Many requests in one lane, so that the queue is full."""
        for _ in range(30):
            self.say_create(lane, None, is_good=True)

    def say_create(self, lane: str | None, previous: str | None, *, is_good: bool, **fields: Any) -> None:
        self.tickets += 1
        ticket = f"t{self.tickets}"
        text = create(lane, metadata={"ticket": ticket}, previous_response_id=previous, **fields)
        expected = [] if self.is_over else self.reference.create(lane, ticket, is_good=is_good)
        is_queued = ("start", lane, ticket) in expected or ticket in self.reference.queues[lane]
        if is_queued and lane not in self.lanes_used:
            self.lanes_used.append(lane)
        if is_queued and previous:
            self.named[ticket] = previous
        self.perform(self.talk.say(text), expected)

    @rule(pick=st.integers(0, 1000), is_waiting=st.booleans())
    def begin(self, pick: int, is_waiting: bool) -> None:
        if response_id := self.pick([each for each, turn in self.open_turns() if not turn.is_begun], pick):
            turn = self.turns[response_id]
            turn.is_begun = True
            self.named.pop(turn.ticket or response_id, None)
            for each in self.steers.values():
                if each.carrier == response_id and not each.fate:
                    each.fate = "committed"
            actions = self.talk.machine.begun(response_id, "m", Queued(1, 0.5) if is_waiting else None)
            if self.is_over:
                assert actions == [Cancel(response_id)], "whoever left is told again"
            else:
                self.perform(actions, [], response_id)

    @rule(pick=st.integers(0, 1000))
    def refuse(self, pick: int) -> None:
        if response_id := self.pick([each for each, turn in self.open_turns() if not turn.is_begun], pick):
            turn = self.turns[response_id]
            turn.end = FAILED
            self.named.pop(turn.ticket or response_id, None)
            expected: list[Seen] = [("error", turn.lane, None)] if turn.ticket else []
            self.reference.busy.discard(turn.lane)
            expected += self.reference.advance(turn.lane) if not self.is_over else []
            self.perform(self.talk.machine.refused(response_id, NOT_FOUND), expected)

    @rule(pick=st.integers(0, 1000), is_call=st.booleans())
    def speak(self, pick: int, is_call: bool) -> None:
        if response_id := self.pick([each for each, turn in self.open_turns() if turn.is_begun], pick):
            self.turns[response_id].has_calls |= is_call
            for outcome in CALL if is_call else [TextDelta("x")]:
                self.perform(self.talk.machine.outcome(response_id, outcome), [], response_id)

    @rule(pick=st.integers(0, 1000), end=st.sampled_from([DONE, DONE, LENGTH, STEERED, INTERRUPTED, FAILED]))
    def end(self, pick: int, end: Outcome) -> None:
        if response_id := self.pick([each for each, turn in self.open_turns() if turn.is_begun], pick):
            turn = self.turns[response_id]
            turn.end = end
            expected: list[Seen] = []
            has_steers = any(each.parent == response_id and not each.fate for each in self.steers.values())
            self.reference.busy.discard(turn.lane)
            if has_steers and not turn.has_calls and end is not FAILED and not self.is_leaving:
                expected.append(("follow", turn.lane, response_id))
                self.reference.busy.add(turn.lane)
            expected += self.reference.advance(turn.lane)
            self.perform(self.talk.machine.outcome(response_id, end), expected, response_id)

    @rule(pick=st.integers(0, 1000), is_discarding=st.booleans(), is_codex=st.booleans())
    def stop(self, pick: int, is_discarding: bool, is_codex: bool) -> None:
        if response_id := self.pick([each for each, turn in self.turns.items() if turn.is_begun], pick):
            mode = "discard_partial_items" if is_discarding else ""
            text = interrupt(response_id, mode=mode) if is_codex else cancel(response_id)
            self.perform(self.talk.say(text), [])

    @rule(pick=st.integers(0, 1000), is_call=st.booleans())
    def speak_and_steer(self, pick: int, is_call: bool) -> None:
        self.speak(pick, is_call)
        self.steer(pick, True, True)

    @rule(
        pick=st.integers(0, 1000), is_good=st.integers(0, 5).map(bool), is_known=st.integers(0, 9).map(bool)
    )
    def steer(self, pick: int, is_good: bool, is_known: bool) -> None:
        known = [each for each, turn in self.turns.items() if turn.is_begun]
        running = [each for each in known if not self.turns[each].end]
        if response_id := self.pick(running or known, pick) if is_known else "resp_of_nobody":
            self.steer_text = f"steer{len(self.steers)}"
            given = self.steer_text if is_good else [{"role": "system", "content": "x"}]
            actions = self.talk.say(steer(response_id, given))
            assert self.is_over or isinstance(actions[0], Send), "every steer is answered"
            self.perform(actions, [])

    @rule(text=st.sampled_from(["", "{", "[]", '{"type":"response.steer"}', "x" * 50]))
    def mumble(self, text: str) -> None:
        self.perform(self.talk.say(text), [] if self.is_over else [("error", None, None)])

    @precondition(lambda self: not self.reference.is_ending)
    @rule(is_now=SELDOM)
    def expire(self, is_now: bool) -> None:
        if is_now:
            self.close_code = self.close_code or 1000
            self.wind_down(self.talk.machine.expire)

    @precondition(lambda self: not self.is_leaving)
    @rule(is_now=SELDOM)
    def drain(self, is_now: bool) -> None:
        if is_now:
            self.leave()

    @rule(is_now=SELDOM)
    def close(self, is_now: bool) -> None:
        if is_now and not self.is_over:
            actions = self.talk.machine.closed()
            assert actions == [Cancel(response_id) for response_id, _ in self.open_turns()]
            self.is_over = True

    def leave(self) -> None:
        self.is_leaving, self.close_code = True, 1012
        self.wind_down(self.talk.machine.drain)

    def wind_down(self, step: Any) -> None:
        if not self.is_over:
            started = {turn.ticket or response_id for response_id, turn in self.open_turns()}
            self.named = {who: previous for who, previous in self.named.items() if who in started}
            self.perform(step(), self.reference.wind_down(self.lanes_used))

    # ---- what comes of it -------------------------------------------------------------------------

    def perform(self, actions: list[Action], expected: list[Seen], response_id: str = "") -> None:
        if self.is_over:
            for action in actions:
                assert isinstance(action, Commit), "nothing else is done after the end"
                assert action.message.response.id == response_id
                self.turns[response_id].terminals += 1
            return
        self.is_sound = False
        seen: list[Seen] = []
        for action in actions:
            assert not self.is_over, "nothing is done after the close"
            match action:
                case Start():
                    seen.append(self.started(action))
                case Send(message=ErrorFrame() as frame):
                    assert frame.status >= 400
                    seen.append(("error", frame.stream_id, None))
                case Send(message=event):
                    self.told(event, response_id)
                case Cancel():
                    turn = self.turns[action.response_id]
                    assert turn.is_begun
                    assert not turn.end
                case Forget():
                    self.forget(action.response_id)
                case Close(code=code):
                    assert self.reference.is_ending
                    assert not self.open_turns()
                    assert code == self.close_code
                    self.is_over = True
        if self.is_over and self.is_leaving:
            assert seen.pop() == ("error", None, None)  # the last words
        assert seen == expected
        self.is_sound = True

    def started(self, start: Start) -> Seen:
        request = start.request
        texts = [item.text for item in request.items]
        carried = [each for each in self.steers.values() if each.text in texts]
        ticket = request.metadata["ticket"] if "hi" in texts else ""
        turn = self.turns[start.response_id] = Turn(request, ticket=ticket)
        assert texts == [each.text for each in carried] + (["hi"] if ticket else [])
        assert texts
        for each in carried:
            assert not each.carrier, "carried once"
            assert not each.fate
            assert each.parent == request.previous_response_id
            assert self.turns[each.parent].lane == turn.lane
            each.carrier = start.response_id
        if ticket:
            return ("start", turn.lane, ticket)
        assert request.previous_response_id is not None
        self.named[start.response_id] = request.previous_response_id
        return ("follow", turn.lane, request.previous_response_id)

    def told(self, event: Any, response_id: str) -> None:
        """An event; that of a steer or an interrupt says itself whose it is."""
        match event:
            case SteerAccepted(steer=accepted):
                response_id = accepted.previous_response_id
                self.steers[accepted.id] = Steered(response_id, self.steer_text)
            case SteerPending(steer=pending):
                response_id = pending.previous_response_id
                steered = self.steers[pending.id]
                steered.notices += 1
                assert (steered.notices, steered.fate, steered.carrier) == (1, "", "")
                assert self.turns[response_id].end
                assert event.required_input
            case SteerFailed(steer=failed):
                response_id = failed.previous_response_id
                if failed.id is not None:
                    steered = self.steers[failed.id]
                    assert not steered.fate, "it has one fate"
                    assert wire(failed)["input"] == steered.text
                    steered.fate = "failed"
            case InterruptAccepted():
                response_id = event.response_id
        if response_id == "resp_of_nobody":
            assert event.sequence_number == 0
            return
        turn = self.turns[response_id]
        assert turn.is_begun
        turn.numbers.append(event.sequence_number)
        turn.terminals += event.is_terminal
        assert wire(event).get("stream_id") == turn.lane

    def forget(self, response_id: str) -> None:
        assert response_id not in self.forgotten, "once"
        assert self.turns[response_id].end, "what runs is not forgotten"
        assert response_id not in self.named.values(), "something needs it"
        assert response_id not in self.held_parents(), "steers wait for it"
        self.forgotten.add(response_id)

    # ---- laws -------------------------------------------------------------------------------------

    @invariant()
    def turns_are_told_once_and_in_order(self) -> None:
        assert len(self.open_turns()) <= MAX_IN_FLIGHT
        for turn in self.turns.values():
            assert turn.numbers == list(range(len(turn.numbers)))
            assert turn.terminals == (turn.is_begun and turn.end is not None), "told, or at least stored"

    @invariant()
    def little_is_remembered(self) -> None:
        """A response a lane, and what is named or waited for."""
        if not self.is_over:
            unstored = {
                response_id
                for response_id, turn in self.turns.items()
                if turn.is_begun and turn.end and not turn.request.is_stored
            }
            kept = unstored - self.forgotten - set(self.named.values()) - self.held_parents()
            assert len(kept) <= len(self.lanes_used)

    def teardown(self) -> None:
        """Whatever was begun can be ended, and then everything has been answered."""
        if not self.is_sound:
            return  # a law was broken: that is what is to be told
        was_over = self.is_over
        for _ in range(5000):
            self.begin(0, False)
            self.end(0, DONE)
            if not self.open_turns() and not (self.reference.waiting and not self.is_over):
                break
        assert not self.open_turns()
        if not self.is_over:
            self.leave()
        assert self.is_over
        if not was_over:
            assert self.reference.waiting == 0
            assert all(each.fate in ("committed", "failed") for each in self.steers.values())
            assert all(turn.terminals == turn.is_begun for turn in self.turns.values())

    # ---- shorthands -------------------------------------------------------------------------------

    steer_text = ""
    is_sound = True

    def open_turns(self) -> list[tuple[str, Turn]]:
        return [(response_id, turn) for response_id, turn in self.turns.items() if not turn.end]

    def held_parents(self) -> set[str]:
        waiting = [each for each in self.steers.values() if not each.fate and not each.carrier]
        return {each.parent for each in waiting if self.turns[each.parent].end not in (None, FAILED)}

    @staticmethod
    def pick(choices: list[str], number: int) -> str:
        return choices[number % len(choices)] if choices else ""


AnyOrder.TestCase.settings = settings(max_examples=examples(60), stateful_step_count=60)
test_a_connection_in_any_order = AnyOrder.TestCase


def test_the_reference_is_not_asleep() -> None:
    """One way through the machine by hand: the reference agrees, and is seen to."""
    run = AnyOrder()
    run.flood(stored=False)
    assert len(run.open_turns()) == MAX_IN_FLIGHT
    run.begin(0, False)
    run.steer(0, True, True)
    run.end(0, STEERED)
    assert [turn.ticket for turn in run.turns.values()].count("") == 1
    run.teardown()
    assert [each.fate for each in run.steers.values()] == ["committed"]
