"""`vivace eval steers`: does the model do as it is told in the middle of an answer?

Owns the order of the cases and what is concluded from each. Runs greedily against a server that is there
already. Does not own what is said (`cases`), how (`talk`), or how it is printed (`report`).
"""

from collections.abc import Callable, Sequence

import msgspec
from websockets.asyncio.client import ClientConnection, connect

from vivace.client.warm import ServerAddress
from vivace.eval.steers.cases import Case
from vivace.eval.steers.checks import passes
from vivace.eval.steers.talk import Talk

Told = Callable[[str], None]
# A conversation that is sent again is tokenized again: where the model's last word was cut, that word's
# tokens may differ.
RESEND_SLACK_TOKENS = 4


class CaseResult(msgspec.Struct, frozen=True):
    name: str
    kind: str
    form: str
    held_out: bool
    obeyed: bool
    kept: bool | None  # None: the task was not to be kept
    passed_before: bool  # the answer that was interrupted passes the checks already: the case shows nothing
    prefilled_again: int  # tokens of the log before a steer that were not in the KV any more
    text: str


async def run_steers(
    address: ServerAddress, model: str, cases: Sequence[Case], tell: Told = lambda _: None
) -> list[CaseResult]:
    results = []
    headers = {"Authorization": f"Bearer {address.token}"}
    async with connect(
        address.socket_url, additional_headers=headers, compression=None, max_size=None, proxy=None
    ) as socket:
        for number, case in enumerate(cases, 1):
            results.append(await run_case(socket, model, case))
            tell(f"{number}/{len(cases)} {case.name}: {'obeyed' if results[-1].obeyed else 'not obeyed'}")
    return results


async def run_case(socket: ClientConnection, model: str, case: Case) -> CaseResult:
    talk = Talk(socket, model, case)
    await talk.ask(case.ask)
    for steer in case.steers:
        await talk.interrupt(steer.after, steer.text, case.form)
    last = await talk.finish()
    return CaseResult(
        name=case.name,
        kind=case.kind,
        form=case.form,
        held_out=case.held_out,
        obeyed=passes(case.obeyed, last.text),
        kept=passes(case.kept, last.text) if case.kept else None,
        passed_before=passes(case.obeyed, talk.answers[0].text),
        prefilled_again=_prefilled_again(talk, case),
        text=last.text,
    )


def _prefilled_again(talk: Talk, case: Case) -> int:
    """Tokens of earlier logs that later answers prefilled again; a log's last token is always fed anew."""
    slack = RESEND_SLACK_TOKENS if case.form == "resend" else 1
    lost = 0
    for before, answer in zip(talk.answers, talk.answers[1:], strict=False):
        lost += max(0, before.total_tokens - slack - answer.cached_tokens)
    return lost
