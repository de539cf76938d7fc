"""What an error says can be read on any screen, whatever value it names."""

from __future__ import annotations

import sys
from unicodedata import bidirectional, category
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

import streamscope as ss
from streamscope.errors import LONGEST_LINE, CompilationError, StreamscopeError, printable, readable

LONG = "x" * 100_000


@given(st.text(st.characters()))
def test_printable_text_is_fit_for_xml_and_terminals(text):
    shown = printable(text)
    root = ET.Element("text")
    root.text = shown
    ET.fromstring(ET.tostring(root, encoding="utf-8"))
    assert len(shown) == len(text)
    for before, after in zip(text, shown, strict=True):
        assert after == ("�" if is_harmful(before) else before)


def is_harmful(character):
    """Tell what Unicode's tables say: a control, a surrogate, a break of a line, an order of its own, or what XML has not."""
    if category(character) in ("Cc", "Cs", "Zl", "Zp"):
        return character not in "\n\t"
    return bidirectional(character) in ("LRE", "RLE", "PDF", "LRO", "RLO", "LRI", "RLI", "FSI", "PDI") or character in "\ufffe\uffff"


def test_every_character_stays_or_is_replaced():
    text = "".join(map(chr, range(sys.maxunicode + 1)))
    assert printable(text) == "".join("�" if is_harmful(character) else character for character in text)


@pytest.mark.parametrize("name", ["👩\u200d💻", "🏴\U000e0067\U000e0062\U000e007f", "\U0001fae9", "می\u200cخواهم", "co\u00adop", "\ue000"])
def test_names_in_any_script_and_emoji_stay(name):
    """With joiners too, and those that Python's tables do not know yet."""
    assert str(StreamscopeError(f"unknown engine {name}")) == f"unknown engine {name}"


@pytest.mark.parametrize("character", ["\u202e", "\u2066", "\u2028", "\u2029"])
def test_no_name_turns_a_line_around_or_breaks_it(character):
    assert str(StreamscopeError(f"unknown engine a{character}b")) == "unknown engine a�b"


@given(st.text(max_size=300))
def test_what_is_readable_is_left_alone(text):
    once = readable(text)
    assert readable(once) == once


CALLS = {
    "an engine": lambda value: ss.Engine(value, device="simulated"),
    "a device": lambda value: ss.Engine("sync", device=value),
    "a folder": ss.load_comparison,
    "an expression": ss.elementwise,
}


@pytest.mark.parametrize("call", CALLS)
def test_a_value_of_100_000_characters_is_cut_and_its_length_told(call):
    with pytest.raises(StreamscopeError) as caught:
        CALLS[call](LONG)
    text = str(caught.value)
    assert "characters)" in text
    assert len(text) < 4 * LONGEST_LINE
    assert text.startswith(caught.value.message[:100])


def test_what_stands_behind_a_long_value_is_still_read():
    error = StreamscopeError(f"unknown engine {LONG!r}: it is not there", hint=f"not {LONG}, but sync")
    assert error.message.startswith("unknown engine 'xxx")
    assert "(100,034 characters)" in error.message
    assert error.message.endswith("x': it is not there")
    assert error.hint is not None
    assert error.hint.endswith("but sync")


def test_lines_of_sources_and_logs_stay():
    log = "\n".join(f"{number}\tx[{number}] = y;" for number in range(2000))
    assert CompilationError(log).message == log


def test_escapes_of_terminals_do_not_reach_them():
    error = StreamscopeError("cannot write \x1b[31mred\x1b]0;title\x07", hint="not \x9b31m")
    assert str(error) == "cannot write �[31mred�]0;title� (not �31m)"
