"""The page of names lists every public name, each once."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import streamscope as ss

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
