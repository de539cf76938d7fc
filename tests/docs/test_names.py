"""The page of names lists every public name, each once."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import streamscope as ss
from streamscope.public_names import ELSEWHERE

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "names.md").read_text(encoding="utf-8")


def names_in(heading):
    """Return the names in the tables of the sections whose heading begins so."""
    sections = [section for section in re.split(r"^## ", PAGE, flags=re.MULTILINE) if section.startswith(heading)]
    rows = [line.split("|") for section in sections for line in section.splitlines() if line.startswith("|")]
    return [name for row in rows for name in re.findall(r"`(\w+)`", row[1 if heading == "`ss`" else 2])]


@pytest.mark.parametrize(("heading", "names"), [("`ss`", ss.__all__), ("`ss.ops`", ss.ops.__all__), ("`ss.analysis`", ss.analysis.__all__)])
def test_every_public_name_is_listed_once(heading, names):
    assert sorted(names_in(heading)) == sorted(names)


def test_the_page_says_how_many_there_are():
    assert f"gives you {len(ss.__all__)} names" in PAGE


def test_what_pytorch_calls_otherwise_is_listed():
    """As the error of such a name says."""
    section = PAGE.split("PyTorch has other names")[1].split("###")[0]
    rows = [line.split("|") for line in section.splitlines() if line.startswith("| `")]
    listed = {name: row[2] for row in rows for name in re.findall(r"`(\w+)`", row[1])}
    assert ELSEWHERE.keys() <= listed.keys()
    for name, ours in ELSEWHERE.items():
        assert ours in listed[name], name
    for name in re.findall(r"ss\.ops\.(\w+)", section):
        assert name in ss.ops.__all__
