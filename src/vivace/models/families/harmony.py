"""gpt-oss: harmony, OpenAI's format of messages with channels.

Owns how conversations, tools and effort are written, what an answer begins with, and which grammars can be.
As OpenAI's renderer has it, but for three things: no date, which would throw the KV of every log away at midnight;
reasoning that a client sends back is shown where it was; and an answer of earlier ends as the model ended it,
with `<|return|>`. So a conversation that is sent again has the tokens of the log it came from.

`<|end|>` is a control token that no grammar of the engine's allows. So under a grammar there is no reasoning, and
where calls are only possible there is no grammar.
"""

from collections.abc import Sequence

from vivace.models.families.base import (
    Call,
    Effort,
    Entry,
    Grammar,
    Message,
    Output,
    Parser,
    Thought,
    Tool,
    Wish,
)
from vivace.models.families.calls import callable_tools
from vivace.models.families.harmony_parser import (
    ANALYSIS,
    CALL,
    CHANNEL,
    COMMENTARY,
    CONSTRAIN,
    END,
    FINAL,
    MESSAGE,
    RETURN,
    START,
    HarmonyParser,
    Header,
)
from vivace.models.families.larks import arguments_rule, json_rule, lark, literal, pattern
from vivace.models.families.typescript import FUNCTIONS, namespaces, recipient
from vivace.models.families.wording import Own, Wording, guarded
from vivace.models.tokenizer import Tokenizer

IDENTITY = "You are ChatGPT, a large language model trained by OpenAI.\nKnowledge cutoff: 2024-06"
CHANNELS = "# Valid channels: analysis, commentary, final. Channel must be included for every message."
CALLS_GO = "Calls to these tools must go to the commentary channel: 'functions'."
CHANGED = "The tools have changed. From now on there are only these."
LEVELS: dict[Effort, str] = {"none": "low", "minimal": "low", "low": "low", "high": "high", "xhigh": "high"}
REASONING = "Reasoning: "
