"""What keys do: from a key to a message, a menu, a decision.

Owns the order in which a key is understood: an open list, a proposal that waits, then the prompt. Does not
own which key is which (`keys`), nor commands (`commands`).
"""

import time
from typing import TYPE_CHECKING

from vivace.tui.prompt.completion import Candidate, complete
from vivace.tui.prompt.menu import Entry
from vivace.tui.transcript.blocks import Output, Table, Thinking, Times

if TYPE_CHECKING:
    from vivace.tui.app import VivaceApp
    from vivace.tui.presenting.questions import AnyQuestion, ApprovalQuestion, ConflictQuestion, Review

TWICE_S = 1.0  # two presses within this time are one of two
TYPING_S = 0.4  # a key this soon after a letter was typed is text, not a decision
UNREAD_S = 0.4  # nor is one this soon after the question came: it was pressed before it could be read


class Controls:
    def __init__(self, app: "VivaceApp") -> None:
        self._app = app
        self._last_typed_s = 0.0
        self._pressed: dict[str, float] = {}  # action -> when, for those that mean more the second time
        self._editing: int | None = None  # the queued message in the prompt
        self._back = 0  # how far the prompt is in the history
        self._kept = ""  # what was typed before that
        self._is_replying = False  # letters are text although a proposal waits
        self._offered_for: tuple[str, int] = ("", 0)  # what was typed when the list above the prompt was made

    def press(self, key: str, character: str | None) -> bool:
        """Understand a key; return False where it is for the editor."""
        app, keys = self._app, self._app.key_map
        self.typed()  # the editor tells its changes late where keys come fast
        if app.menu.is_open:
            if action := keys.action("menu", key):
                return self._do_menu(action)
            if app.menu.is_filtering:
                app.menu.type(key, character)
                return True
        is_empty = not app.editor.text
        question = app.question
        if question and self.takes_decisions and (action := keys.action(question.group, key)):
            return self._decide(question, action)
        action = keys.action("prompt", key)
        if action is None or (action in ("help", "leave") and not is_empty):
            self._last_typed_s = time.monotonic()
            return False
        return self._do_prompt(action)

    @property
    def takes_decisions(self) -> bool:
        """Return whether letters decide about a proposal: not while the user is typing."""
        is_typing = self._is_replying or bool(self._app.editor.text)
        return (
            self._app.question is not None
            and not is_typing
            and self.unread_s <= 0
            and time.monotonic() - self._last_typed_s > TYPING_S
        )

    @property
    def unread_s(self) -> float:
        """Return the seconds until keys decide about the question that has just come, or 0."""
        question = self._app.question
        return max(0.0, question.shown_s + UNREAD_S - time.monotonic()) if question else 0.0

    # ---- lists -------------------------------------------------------------------------------------------

    def _do_menu(self, action: str) -> bool:
        menu = self._app.menu
        if action in ("menu_up", "menu_down"):
            menu.move(-1 if action == "menu_up" else 1)
        elif action == "menu_choose":
            typed = menu.query_text if menu.is_filtering and not menu.entries else ""
            menu.choose()
            self._app.editor.insert(typed)  # nothing fits: it was meant for somebody else
        else:
            menu.close()
        return True

    # ---- questions ---------------------------------------------------------------------------------------

    def _decide(self, question: "AnyQuestion", action: str) -> bool:
        from vivace.tui.presenting.questions import ApprovalQuestion, ConflictQuestion, Review

        match question:
            case Review():
                self._do_review(question, action)
            case ConflictQuestion():
                self._do_conflict(question, action)
            case ApprovalQuestion():
                self._do_approval(question, action)
        self._app.changed()
        return True

    def _do_review(self, review: "Review", action: str) -> None:
        from vivace.tui.external_editor import edit_proposal

        match action:
            case "accept" | "reject":
                review.choose(is_taken=action == "accept")
            case "by_hunk":
                if len(review.proposal.hunks) > 1:
                    review.ask_by_hunk()
            case "edit":
                self._app.run_shown(edit_proposal(self._app, review))
            case "reply":
                self._is_replying = True

    def _do_conflict(self, question: "ConflictQuestion", action: str) -> None:
        from vivace.agent.edits.conflict import Resolution, Stop, TakeEdit, TakeFile
        from vivace.tui.external_editor import merge_conflict

        if action == "merge":
            self._app.run_shown(merge_conflict(self._app, question))
        else:
            chosen: dict[str, Resolution] = {"take_edit": TakeEdit(), "take_file": TakeFile()}
            question.resolve(chosen.get(action, Stop()))

    def _do_approval(self, question: "ApprovalQuestion", action: str) -> None:
        from vivace.agent.loop.calls import Approval

        is_kept = action == "allow_always" and question.asked.can_be_kept
        question.resolve(Approval(action != "refuse", is_kept=is_kept, digest=question.asked.digest))

    # ---- the prompt --------------------------------------------------------------------------------------

    def _do_prompt(self, action: str) -> bool:
        app = self._app
        match action:
            case "send":
                self._submit(is_queued=False)
            case "queue":
                self._submit(is_queued=True)
            case "newline":
                app.editor.insert("\n")
            case "stop":
                self._stop()
            case "answer_now":
                app.answer_now()
            case "interrupt":
                self._interrupt()
            case "leave":
                self._leave()
            case "earlier" | "later":
                return self._browse(-1 if action == "earlier" else 1)
            case "search_history":
                self._search_history()
            case "open_editor":
                self._write_in_editor()
            case "choose_model":
                app.run_command("/model")
            case "background":
                self._to_background()
            case "next_mode":
                app.next_mode()
            case "scroll_up" | "scroll_down":
                page = max(1, app.transcript.size.height - 2)
                app.transcript.scroll_rows(-page if action == "scroll_up" else page)
            case "scroll_end":
                app.transcript.follow()
            case "details":
                self._toggle_last(Times, Output)
            case "thinking":
                self._toggle_last(Thinking)
            case "help":
                app.transcript.add(Table(app.key_map.help(), "Keys"))
        return True

    def _submit(self, *, is_queued: bool) -> None:
        app = self._app
        text, typed = app.editor.whole_text.strip(), app.editor.text.strip()
        if app.is_refused(typed):
            return
        if self._editing is not None:
            self._change_queued(text)
        elif text:
            app.history.add(typed)
            app.submit(text, is_queued=is_queued, has_paste=text != typed)
        self._clear()
        app.transcript.follow()

    def _write_in_editor(self) -> None:
        from vivace.tui.external_editor import write_message

        self._app.run_shown(write_message(self._app))

    def _to_background(self) -> None:
        """Begin what is typed as a task beside, or move the running turn there."""
        app = self._app
        if app.is_refused(app.editor.text.strip()):
            return
        if text := app.editor.whole_text.strip():
            app.history.add(app.editor.text.strip())
            self._clear()
            app.run_command(f"/background {text}")
        elif app.session is not None and app.is_turn_running:
            app.session.spawn_shown(app.session.move_to_background())
        else:
            app.hint("type what to do in the background first", seconds=TWICE_S)

    def _change_queued(self, text: str) -> None:
        session, number = self._app.session, self._editing
        if session is not None and number is not None:
            if text:
                session.talk.queue.change(number, text)
            else:
                session.talk.queue.remove(number)

    def _clear(self) -> None:
        self._editing, self._back, self._kept, self._is_replying = None, 0, "", False
        self._last_typed_s = 0.0
        self._app.editor.set_text("")

    def _is_second(self, action: str) -> bool:
        now_s = time.monotonic()
        was_s, self._pressed[action] = self._pressed.get(action, -TWICE_S), now_s
        if now_s - was_s > TWICE_S:
            return False
        del self._pressed[action]
        return True

    def _stop(self) -> None:
        """Stop the turn; without one, the second press opens the list of turns to go back to."""
        app = self._app
        if app.is_turn_running:
            self._pressed.pop("stop", None)
            app.stop_turn()
        elif self._is_replying:
            self._is_replying = False
        elif self._is_second("stop"):
            app.run_command("/rewind")

    def _interrupt(self) -> None:
        app = self._app
        if app.is_turn_running:
            app.stop_turn()
        elif app.editor.text:
            app.history.add(app.editor.text.strip())  # cleared, not lost
            self._clear()
        elif self._is_second("interrupt"):
            app.leave()
        else:
            app.hint(f"{app.key_map.shown('interrupt')} again leaves", seconds=TWICE_S)

    def _leave(self) -> None:
        app = self._app
        if not app.is_turn_running or self._is_second("leave"):
            app.leave()
        else:
            app.hint(f"{app.key_map.shown('leave')} again stops the turn and leaves", seconds=TWICE_S)

    # ---- what was said before ------------------------------------------------------------------------------

    def _browse(self, step: int) -> bool:
        """Go to an earlier message at the first line, to a later one at the last; queued ones come first."""
        app = self._app
        if not (app.editor.cursor_at_first_line if step < 0 else app.editor.cursor_at_last_line):
            return False
        queued = app.session.talk.queue.messages if app.session else ()
        said = [*((None, text) for text in app.history.entries), *((each.id, each.text) for each in queued)]
        back = min(max(0, self._back - step), len(said))
        if back == self._back:
            return step < 0
        if self._back == 0:
            self._kept = app.editor.text
        self._back = back
        self._editing, text = said[-back] if back else (None, self._kept)
        app.editor.set_text(text)
        app.hint("editing a queued message" if self._editing is not None else "")
        return True

    def _search_history(self) -> None:
        app = self._app
        entries = [Entry(text, text) for text in reversed(app.history.entries)]
        app.menu.open(entries, lambda text: app.editor.set_text(str(text)), title="Said before:")

    # ---- while typing --------------------------------------------------------------------------------------

    def typed(self) -> None:
        """Offer what could be meant by the word at the cursor."""
        app = self._app
        before = app.editor.before_cursor
        if (app.menu.is_open and app.menu.is_filtering) or self._offered_for == (before, self._back):
            return
        self._offered_for = before, self._back
        found = complete(before, app.folder, app.command_candidates) if not self._back else None
        if found is None:
            app.menu.close()
            return

        def take(chosen: object) -> None:
            assert isinstance(chosen, Candidate)
            app.editor.replace_before_cursor(found.length, f"{chosen.text} ")

        entries = [Entry(each.label, each, each.hint) for each in found.candidates]
        app.menu.open(entries, take, is_filtering=False)

    def _toggle_last(self, *kinds: type[Times | Output | Thinking]) -> None:
        """Unfold or fold the last block of these kinds."""
        for block in reversed(self._app.transcript.blocks):
            if isinstance(block, Times | Output | Thinking) and isinstance(block, kinds):
                block.toggle()
                self._app.transcript.touch()
                return
