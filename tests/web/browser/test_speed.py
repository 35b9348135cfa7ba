"""Text that comes fast and conversations that are long. Asserts on counts; times are only reported."""

from typing import TYPE_CHECKING

from tests.web.browser.scripted_host import ScriptedHost, turn

if TYPE_CHECKING:
    from playwright.sync_api import Page

TOKEN = "token "
WATCH_FRAMES = """() => {
  const frames = window.frames_ms = [];
  let last = performance.now();
  const watch = (now) => { frames.push(now - last); last = now; requestAnimationFrame(watch); };
  requestAnimationFrame(watch);
}"""


def test_ten_thousand_tokens_a_second_are_drawn_once_a_frame(opened: "Page", host: ScriptedHost) -> None:
    """However many deltas come between two frames, the turn is drawn once for them, and no text is lost."""
    tokens, rate, a_frame = 10_000, 10_000, 20
    code = "```python\n" + "".join(f"value_{n} = compute({n})  # {TOKEN}\n" for n in range(400)) + "```\n\n"
    host.tell({"type": "turn.started", "turn": 1, "text": "go"}, {"type": "attempt.started"})
    host.tell({"type": "answer.delta", "text": code})
    opened.get_by_text("value_399").wait_for(state="attached")
    opened.evaluate(WATCH_FRAMES)
    before = opened.evaluate("() => ({...vivaceCounts})")
    paragraph = [f"{TOKEN}\n\n" if n % 60 == 59 else TOKEN for n in range(tokens)]
    deltas = ["".join(paragraph[n : n + a_frame]) for n in range(0, tokens, a_frame)]
    host.play((n * a_frame / rate, {"type": "answer.delta", "text": text}) for n, text in enumerate(deltas))
    host.tell({"type": "turn.ended", "turn": 1, "status": "completed"})
    opened.wait_for_function("() => !document.querySelector('.stop')")
    opened.wait_for_function(
        "count => document.querySelector('.turn .prose').textContent.split('token').length - 1 === count",
        arg=tokens + 400,
    )
    after = opened.evaluate("() => ({...vivaceCounts})")
    drawn, frames = after["drawings"] - before["drawings"], opened.evaluate("() => window.frames_ms")
    assert after["events"] - before["events"] == len(deltas) + 1
    assert drawn <= len(frames) + 1
    assert after["chunks"] == before["chunks"], "the code above is not touched again"
    print(f"{tokens} tokens at {rate} tok/s: {len(frames)} frames, {drawn} drawings, {max(frames):.0f} ms")


def test_a_growing_block_of_code_costs_its_last_lines(opened: "Page", host: ScriptedHost) -> None:
    """Each frame touches the chunks that are new, whatever stands above; what can be seen is coloured."""
    lines, a_piece = 4_000, 40
    host.tell({"type": "turn.started", "turn": 1, "text": "go"}, {"type": "attempt.started"})
    host.tell({"type": "answer.delta", "text": "```python\n"})
    opened.wait_for_selector(".code")
    text = [f"value_{n} = compute({n}, 'text')  # why\n" for n in range(lines)]
    pieces = ["".join(text[n : n + a_piece]) for n in range(0, lines, a_piece)]
    before = opened.evaluate("() => ({...vivaceCounts})")
    host.play((n * 0.01, {"type": "answer.delta", "text": piece}) for n, piece in enumerate(pieces))
    host.tell({"type": "answer.delta", "text": "```\n"})
    host.tell({"type": "turn.ended", "turn": 1, "status": "completed"})
    opened.wait_for_function(
        "lines => document.querySelector('.code code').textContent.split('\\n').length === lines + 1",
        arg=lines,
    )
    opened.wait_for_function("() => document.querySelector('.code .group:last-child .chunk:last-child .s')")
    after = opened.evaluate("() => ({...vivaceCounts})")
    chunks = opened.locator(".code .chunk").count()
    assert chunks == lines / 16
    settled = (
        after["frames"] - before["frames"] + lines * len(text[0]) / 2_000
    )  # frames in which text was read
    assert after["chunks"] - before["chunks"] <= chunks + 2 * settled, (
        "a chunk is drawn when it grows, no more"
    )
    host.tell({"type": "turn.started", "turn": 2, "text": "again"}, {"type": "answer.delta", "text": "Yes."})
    opened.get_by_text("Yes.").wait_for()
    assert opened.evaluate("() => vivaceCounts.chunks") == after["chunks"], "what stands is left alone"


def test_a_talk_of_five_thousand_turns_has_few_elements(page: "Page", host: ScriptedHost) -> None:
    """Only turns that can be seen are in the page, from the first to the last one."""
    host.records = [
        event
        for number in range(1, 5001)
        for event in turn(
            number,
            f"question {number}",
            f"Answer **{number}**.\n\n```python\nx = {number}\n```\n" * (1 + number % 3),
        )
    ]
    page.goto(host.url)
    page.wait_for_selector("[aria-label='Turn 5000']")
    assert page.locator(".turn").count() < 60
    page.evaluate(WATCH_FRAMES)
    page.evaluate("""async () => {
      const scroller = document.querySelector('.scroller');
      window.seen = new Set();
      for (let n = 0; n < 60; n += 1) {
        scroller.scrollTop -= 400;
        await new Promise(requestAnimationFrame);
        for (const each of document.querySelectorAll('.turn')) window.seen.add(each.ariaLabel);
      }
    }""")
    longest = max(page.evaluate("() => window.frames_ms"))
    assert page.evaluate("() => window.seen.size") > 60
    assert page.locator(".turn").count() < 60
    page.evaluate("() => document.querySelector('.scroller').scrollTop = 0")
    page.wait_for_selector("[aria-label='Turn 1']")
    assert page.locator(".turn").count() < 60
    assert page.locator("[aria-label='Turn 5000']").count() == 0
    print(f"scrolling through 5,000 turns: longest frame {longest:.0f} ms")


def test_the_view_stays_at_the_end_until_one_scrolls_up(opened: "Page", host: ScriptedHost) -> None:
    """New text is in sight as it comes; who has scrolled up is left where they are."""
    at_end = """() => {
      const scroller = document.querySelector('.scroller');
      return scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight < 4;
    }"""
    host.tell({"type": "turn.started", "turn": 1, "text": "go"})
    for _ in range(10):
        host.tell({"type": "answer.delta", "text": "more\n\n" * 20})
    opened.wait_for_function("() => document.querySelectorAll('.prose p').length === 200")
    opened.wait_for_function(at_end)
    opened.evaluate("() => document.querySelector('.scroller').scrollTop -= 500")
    opened.wait_for_function(f"() => !({at_end})()")
    place = opened.evaluate("() => document.querySelector('.scroller').scrollTop")
    host.tell({"type": "answer.delta", "text": "more\n\n" * 20})
    opened.wait_for_function("() => document.querySelectorAll('.prose p').length === 220")
    assert abs(opened.evaluate("() => document.querySelector('.scroller').scrollTop") - place) < 4
