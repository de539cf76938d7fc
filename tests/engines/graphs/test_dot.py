"""DOT: what is written can be read, and says what the graph is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.engines.graphs.conftest import graphs
from tests.engines.graphs.dot_language import read_dot, unquoted

from streamscope.engines.graphs import GraphView, dot, quoted
from streamscope.errors import OutputError, printable


@given(graphs(), st.text(max_size=20))
def test_any_graph_can_be_read_back(nodes, name):
    found = read_dot(dot(nodes, name))
    assert set(found.nodes) == {f"n{index}" for index in range(len(nodes))}
    assert sorted(found.edges) == sorted((f"n{before}", f"n{index}") for index, node in enumerate(nodes) for before in node.after)
    for lane in {node.lane for node in nodes} - {""}:
        assert found.clusters[lane] == [f"n{index}" for index, node in enumerate(nodes) if node.lane == lane]


@given(st.text(st.characters(codec="utf-8"), max_size=30))
def test_quoted_texts_say_the_same(text):
    assert unquoted(quoted(text)) == printable(text)


def test_a_hand_written_line():
    assert quoted('a "b" \\N\nc') == '"a \\"b\\" \\\\N\\nc"'


def test_the_branches_workload(ran_twice, tmp_path):
    (view,) = ran_twice("branches", "graph-dual", streams=4).graphs
    path = view.save(tmp_path / "branches.dot")
    found = read_dot(path.read_text(encoding="utf-8"))
    assert found.name == "parallel_branches, segment 0"
    assert list(found.clusters) == ["main", "aux 1", "aux 2", "aux 3"]
    assert found.nodes["n0"]["label"].splitlines()[:2] == ["multiply", "64 × 256"]
    assert "programs.py" in found.nodes["n0"]["tooltip"]
    assert [file.name for file in tmp_path.iterdir()] == ["branches.dot"]


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(OutputError, match="cannot write"):
        GraphView("p", 0, ()).save(tmp_path / "none" / "graph.dot")
