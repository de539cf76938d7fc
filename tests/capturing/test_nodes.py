"""Which memory the nodes of captured code lead to."""

from __future__ import annotations

from types import SimpleNamespace

from hypothesis import given
from hypothesis import strategies as st

from streamscope.capturing.memory import Access, Evidence, NodeMemory
from streamscope.capturing.nodes import addresses_of

places = st.integers(0, 60)
spans = st.lists(st.tuples(places, st.integers(0, 9)).map(lambda one: (one[0], sum(one))), max_size=5)
nodes = st.lists(st.tuples(st.lists(places, max_size=6), spans, st.sampled_from(["", "its type does not say what for"])), max_size=4)


@given(nodes)
def test_what_an_understood_node_does_not_touch_is_not_led_to_though_its_arguments_hold_the_address(drawn):
    """Arguments hold what earlier kernels left there: addresses of memory that has been given to somebody else since."""
    memories = [
        NodeMemory(tuple(Access(*span, True, True, Evidence.SCHEMA) for span in touched), why_unknown) for _, touched, why_unknown in drawn
    ]
    found = addresses_of([SimpleNamespace(words=tuple(words)) for words, _, _ in drawn], memories)
    touched = {byte for _, spans, _ in drawn for start, end in spans for byte in range(start, end)}
    unknown = {word for words, _, why_unknown in drawn if why_unknown for word in words}
    assert found <= touched | unknown
    assert found >= unknown
    for words, spans, _ in drawn:
        inside = {byte for start, end in spans for byte in range(start, end)}
        assert found >= inside & set(words)
        assert all(start in found or any(other < start < last for other, last in spans) for start, end in spans if start < end)
