"""One conversation that uses everything a family must write: shared by the golden tests of all families."""

from vivace.models.families.base import Call, Entry, Message, Output, Tool

WEATHER = Tool(
    "get_weather",
    "Gets the weather of a city.",
    {
        "type": "object",
        "properties": {
            "city": {"type": "string", "description": "The city and its country."},
            "unit": {"type": "string", "enum": ["celsius", "fahrenheit"], "default": "celsius"},
            "days": {"type": "array", "items": {"type": "integer"}},
        },
        "required": ["city"],
    },
)
SEARCH = Tool(
    "search",
    "Finds <files> with “words”.",
    {
        "type": "object",
        "properties": {"words": {"type": "string"}, "is_exact": {"type": "boolean"}},
        "required": ["words", "is_exact"],
        "additionalProperties": False,
    },
    is_strict=True,
)
PATCH = Tool("apply_patch", "Changes files.", is_custom=True, syntax="lark", definition='start: "x"+')
TOOLS = (WEATHER, SEARCH)
SYSTEM, QUESTION = "Be brief.", "What is the weather in Genève,\nand who knows?"
BEGIN: list[Entry] = [Message("system", SYSTEM), Message("user", QUESTION)]
FIRST_CALL = Call("get_weather", '{"city": "Genève", "days": [1, 2]}', "c1")
SECOND_CALL = Call("search", '{"words": "a \\"b\\"", "is_exact": true}', "c2")
CALLING: list[Entry] = [Message("assistant", "I will look."), FIRST_CALL, SECOND_CALL]
OUTPUTS: list[Entry] = [Output("22 degrees\n", "c1", "get_weather"), Output("nobody", "c2", "search")]
ANSWERED: list[Entry] = [Message("assistant", "22 degrees. Nobody.")]
ASKED: list[Entry] = [Message("user", "Thanks")]
WHOLE = [*BEGIN, *CALLING, *OUTPUTS, *ANSWERED, *ASKED]
