from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stapes.text.detokenizer import Detokenizer
from stapes.text.tokenizer import Tokenizer
from text.bpe_folder import control_ids


class Rigged:
    """Token i is the i-th of these byte strings."""

    def __init__(self, *tokens: bytes) -> None:
        self.tokens = tokens

    def token_bytes(self, token_id: int) -> bytes:
        return self.tokens[token_id]


def deltas(*tokens: bytes) -> list[str]:
    """What each token settles, then what flushing adds."""
    detokenizer = Detokenizer(Rigged(*tokens))
    return [*(detokenizer.feed(i) for i in range(len(tokens))), detokenizer.flush()]


CASES = {
    "ascii": ([b"one", b" two"], ["one", " two", ""]),
    "emoji in four tokens": ([b"\xf0", b"\x9f", b"\x98", b"\x80"], ["", "", "", "😀", ""]),
    "a character over two tokens": ([b"a\xe4\xbd", b"\xa0b"], ["a", "你b", ""]),
    "a genuine replacement character": ([b"a\xef\xbf\xbd", b"b"], ["a\ufffd", "b", ""]),
    "a genuine one in three tokens": ([b"\xef", b"\xbf", b"\xbd"], ["", "", "\ufffd", ""]),
    "an invalid lone byte": ([b"a", b"\xff", b"b"], ["a", "\ufffd", "b", ""]),
    "a lone continuation": ([b"\x80", b"x"], ["\ufffd", "x", ""]),
    "stopped in mid-character": ([b"a", b"\xf0\x9f"], ["a", "", "\ufffd"]),
    "a character cut off by another": ([b"\xf0\x9f", b"x"], ["", "\ufffdx", ""]),
    "an impossible start settles at once": ([b"\xf0\x80", b"x"], ["\ufffd\ufffd", "x", ""]),
    "no bytes between two halves": ([b"\xe4\xbd", b"", b"\xa0"], ["", "", "你", ""]),
}


@pytest.mark.parametrize("case", CASES)
def test_what_settles_when(case: str):
    tokens, expected = CASES[case]
    assert deltas(*tokens) == expected
    assert "".join(expected) == b"".join(tokens).decode("utf-8", "replace")


@given(tokens=st.lists(st.binary(max_size=5)))
def test_deltas_join_to_the_whole(tokens: list[bytes]):
    assert "".join(deltas(*tokens)) == b"".join(tokens).decode("utf-8", "replace")


@given(text=st.text(st.characters(exclude_categories=["Cs"])), size=st.integers(1, 3))
def test_valid_text_never_shows_a_replacement_character(text: str, size: int):
    blob = text.encode()
    parts = deltas(*(blob[i : i + size] for i in range(0, len(blob), size)))
    assert "".join(parts) == text
    assert parts[-1] == ""


@given(ids=st.lists(st.integers(0, max(control_ids().values()) + 2)))
def test_every_id_sequence(tokenizer: Tokenizer, ids: list[int]):
    detokenizer = Detokenizer(tokenizer)
    text = "".join(detokenizer.feed(i) for i in ids) + detokenizer.flush()
    assert text == tokenizer.decode(ids)
    assert detokenizer.feed_all(ids) + detokenizer.flush() == text
