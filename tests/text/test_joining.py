# ruff: noqa: RUF001
from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stapes.text.joining import join_pieces

MATRIX = [
    # the same script on both sides
    (["hello", "world"], "hello world"),
    (["Hello.", "World."], "Hello. World."),
    (["привет", "мир"], "привет мир"),
    (["γεια", "σου"], "γεια σου"),
    (["مرحبا", "بالعالم"], "مرحبا بالعالم"),
    (["안녕하세요", "세계"], "안녕하세요 세계"),
    (["안녕하세요.", "세계입니다."], "안녕하세요. 세계입니다."),
    (["नमस्ते", "दुनिया"], "नमस्ते दुनिया"),
    (["xin chào", "thế giới"], "xin chào thế giới"),
    (["你好", "世界"], "你好世界"),
    (["你好。", "世界。"], "你好。世界。"),
    (["你好.", "世界"], "你好.世界"),
    (["こんにちは", "世界"], "こんにちは世界"),
    (["カタカナー", "ひらがな"], "カタカナーひらがな"),
    (["そうですね。", "はい、"], "そうですね。はい、"),
    (["時々", "人々"], "時々人々"),
    (["สวัสดี", "ชาวโลก"], "สวัสดีชาวโลก"),
    (["น้ำ", "ไทย"], "น้ำไทย"),
    # two scripts
    (["我喜欢", "Python"], "我喜欢 Python"),
    (["Hello.", "你好"], "Hello. 你好"),
    (["你好。", "Hello"], "你好。Hello"),
    (["สวัสดี", "hello"], "สวัสดี hello"),
    (["안녕", "世界"], "안녕 世界"),
    # digits go with their neighbours
    (["2023", "年"], "2023年"),
    (["我在2023", "年"], "我在2023年"),
    (["in", "2023"], "in 2023"),
    (["1 2", "3 4"], "1 2 3 4"),
    # punctuation
    (["well", ", yes"], "well, yes"),
    (["really", "?"], "really?"),
    (["it costs", ".5 dollars"], "it costs .5 dollars"),
    (["and then", "...nothing"], "and then ...nothing"),
    (["he said (", "no)"], "he said (no)"),
    (["he said “", "no”"], "he said “no”"),
    (["(no", ") he said"], "(no) he said"),
    (["¿qué?", "¡nada!"], "¿qué? ¡nada!"),
    (["他说「", "不」"], "他说「不」"),
    (["你好", "，世界"], "你好，世界"),
    (["Hello", "，世界"], "Hello，世界"),
    (["really！", "yes"], "really！yes"),
    # nothing there
    ([], ""),
    ([""], ""),
    (["", "  ", "\n"], ""),
    (["hello", "", "world"], "hello world"),
    (["你好", "", "世界"], "你好世界"),
    (["", "hello", ""], "hello"),
    # white space of the pieces
    (["hello ", " world"], "hello world"),
    ([" hello\n", "\tworld "], "hello world"),
    (["two  inner", "stay"], "two  inner stay"),
    (["a", "b", "c", "d"], "a b c d"),
]


@pytest.mark.parametrize(("pieces", "expected"), MATRIX)
def test_the_matrix(pieces: list[str], expected: str):
    assert join_pieces(pieces) == expected


words = st.sampled_from(
    ["hello", "Hi.", "你好", "。", "세계", "ไทย", "12", "(", "”", ",", " ", "", "かな"]
)


@given(st.lists(words, max_size=8))
def test_nothing_is_lost_and_no_space_doubled(pieces: list[str]):
    joined = join_pieces(pieces)
    assert joined.replace(" ", "") == "".join(pieces).replace(" ", "")
    assert "  " not in joined
    assert joined == joined.strip()


@given(st.text(max_size=20))
def test_a_single_piece_is_only_stripped(text: str):
    assert join_pieces([text]) == text.strip()
