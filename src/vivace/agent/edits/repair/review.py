"""What the model itself thinks of an answer: does it do what the task says?

Owns the question and how the answer is weighed: nothing is written, `yes` and `no` are scored. Does not
choose (`check.choose`).
"""

from vivace.agent.edits.write.rewrite import Rewrite
from vivace.agent.model import Model
from vivace.agent.prompting import Message, begun_answer, user

QUESTION = "Is this right? Does the piece now do what the task says, without a mistake? Answer yes or no."
VERDICTS = ["yes", "no"]


async def review(model: Model, request: Rewrite, answer: str) -> float:
    """Return the log-odds that the answer is right, by the model. They compare answers to one request."""
    yes, no = await model.score(review_messages(request, answer), VERDICTS)
    return yes - no


def review_messages(request: Rewrite, answer: str) -> list[Message]:
    """Return the question behind the answer, which the KV may have already."""
    *asked, begun = request.messages
    whole = {"role": "assistant", "content": f"{begun['content']}{answer}\n{request.fence}"}
    return [*asked, whole, user(QUESTION), begun_answer("")]
