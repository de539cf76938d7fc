"""Folders of jobs that were damaged at random, or mixed, are refused or read with a warning: never a hang, a crash or a silent mixture.

``STREAMSCOPE_MUTATIONS=60000`` tries 5,000.
"""

from __future__ import annotations

import os
import re

import pytest
from tests.mutating_ranks import KINDS, run_files, tried

import streamscope as ss

COUNT = max(len(KINDS), int(os.environ.get("STREAMSCOPE_MUTATIONS", "200")) // 12)


@pytest.mark.timeout(60 + 4 * COUNT)
def test_damaged_and_mixed_folders_are_refused_or_marked():
    cases = [tried(number) for number in range(COUNT)]
    assert [one for one in cases if one["outcome"] not in ("read", "marked", "refused")] == []
    assert {one["outcome"] for one in cases} == {"read", "marked", "refused"}


def test_a_clock_further_off_than_those_of_hosts_is_told(tmp_path):
    """A file of a run like this one, a minute later: its collectives fit."""
    files = {**run_files(1), "rank2.json": run_files(1, late_s=60)["rank2.json"]}
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    (said,) = ss.read_ranks(tmp_path, progress=False).warnings
    assert re.fullmatch(r"the clock of rank 2 is (59|60|61)\.\d s off: is its file of another run\?", said)
