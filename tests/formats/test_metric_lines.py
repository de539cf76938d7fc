"""The metrics of a trace as JSON Lines: the same text from `save` as from `json_lines`."""

from __future__ import annotations

from tests.formats.test_contract import trace

import streamscope as ss


def test_save_writes_them(tmp_path):
    assert trace().save(tmp_path / "t.jsonl").read_text(encoding="utf-8") == ss.analysis.json_lines(trace())
