"""Long texts are encoded once, as long as they are remembered."""

from vivace.models.encoded_texts import LONG_CHARS, EncodedTexts


class Encoder:
    def __init__(self) -> None:
        self.asked: list[str] = []

    def __call__(self, text: str) -> list[int]:
        self.asked.append(text)
        return list(text.encode())


def test_a_long_text_is_encoded_once() -> None:
    """What is done with its tokens changes nothing for the next who asks."""
    encoder = Encoder()
    encode = EncodedTexts(encoder)
    text = "x" * LONG_CHARS
    first = encode(text)
    first.append(0)
    assert encode(text) == list(text.encode())
    assert encoder.asked == [text]


def test_a_short_text_is_not_remembered() -> None:
    """It is encoded as soon as it would be found."""
    encoder = Encoder()
    encode = EncodedTexts(encoder)
    assert encode("x") == encode("x") == [ord("x")]
    assert encoder.asked == ["x", "x"]


def test_the_text_used_longest_ago_is_forgotten() -> None:
    """All texts together have a limit, and one above it is encoded all the same."""
    encoder = Encoder()
    encode = EncodedTexts(encoder, most_chars=2 * LONG_CHARS)
    a, b, c = (letter * LONG_CHARS for letter in "abc")
    for text in (a, b, a, c, a, b):
        assert encode(text) == list(text.encode())
    assert encoder.asked == [a, b, c, b]
    huge = "d" * 3 * LONG_CHARS
    assert encode(huge) == encode(huge) == list(huge.encode())
