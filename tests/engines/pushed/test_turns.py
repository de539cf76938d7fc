"""Turns: many readers or one writer, nobody overtakes, and nobody waits for ever."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.engines.pushed.conftest import SPEC

from streamscope.engines.pushed.variable import Turn, VariableState, enter, idle, leave
from streamscope.program.variable import MemoryPlace

SETS = st.sets(st.integers(0, 3), max_size=3)


def conflict(one, other):
    """Tell whether the order of two operations matters."""
    (reads, writes), (other_reads, other_writes) = one, other
    return bool(writes & (other_reads | other_writes) or other_writes & reads)


@given(accesses=st.lists(st.tuples(SETS, SETS), max_size=12), data=st.data())
def test_any_order_of_ends(accesses, data):
    states = [VariableState(number, SPEC, MemoryPlace.HOST, "") for number in range(4)]
    accesses = [(reads - writes, writes) for reads, writes in accesses]
    operations = [Turn([states[n] for n in reads], [states[n] for n in writes], lambda: None) for reads, writes in accesses]
    running, started, ended, entered = [], [], set(), 0

    def begin(operation):
        number = operations.index(operation)
        # Everything before it that it conflicts with has ended, and nothing that it need not wait for was waited for.
        assert all(other in ended for other in range(number) if conflict(accesses[number], accesses[other]))
        started.append(number)
        running.append(operation)

    while entered < len(operations) or running:
        if entered < len(operations) and (not running or data.draw(st.booleans())):
            operation = operations[entered]
            expected = all(other in ended for other in range(entered) if conflict(accesses[entered], accesses[other]))
            free = idle(operation.reads, operation.writes)
            entered += 1
            assert enter(operation) is free is expected
            if free:
                begin(operation)
        else:
            operation = running.pop(data.draw(st.integers(0, len(running) - 1)))
            ended.add(operations.index(operation))
            for freed in leave(operation):
                begin(freed)
    assert sorted(started) == list(range(len(operations)))
    assert all(not state.waiting and not state.reading and not state.writing for state in states)
