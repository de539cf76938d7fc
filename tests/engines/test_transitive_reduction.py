"""Waits between streams of a graph are merged where that takes no time; every order that is needed stays."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from streamscope.engines.transitive_reduction import with_fewer_waits
from streamscope.order.graph import without_implied


@st.composite
def spreads(draw):
    """Draw operations that need others, on streams: their order, streams, needs and durations."""
    count = draw(st.integers(1, 14))
    needed = tuple(tuple(sorted(draw(st.sets(st.integers(0, number - 1), max_size=3)))) if number else () for number in range(count))
    streams = draw(st.lists(st.integers(0, 3), min_size=count, max_size=count))
    durations_ns = draw(st.lists(st.just(0.0) | st.integers(100, 9000).map(float), min_size=count, max_size=count))
    left, order = set(range(count)), []
    while left:
        order.append(draw(st.sampled_from(sorted(number for number in left if left.isdisjoint(needed[number])))))
        left.remove(order[-1])
    return order, streams, needed, durations_ns


def one_after_the_other(order, streams, needed):
    """Return what each operation comes directly after, with the order of its stream."""
    last, place, after = {}, {number: at for at, number in enumerate(order)}, []
    for number in order:
        ahead = [last[streams[number]]] if streams[number] in last else []
        after.append(sorted({place[one] for one in (*needed[number], *ahead)}))
        last[streams[number]] = number
    edges = [()] * len(order)
    for number, earlier in zip(order, without_implied(after), strict=True):
        edges[number] = tuple(order[one] for one in earlier)
    return edges


def waits(edges, streams):
    return sum(streams[one] != streams[number] for number, earlier in enumerate(edges) for one in earlier)


def end_ns(order, edges, streams, durations_ns, gap_ns, wait_ns):
    """Return when all is done if everything starts as early as it can."""
    done = {}
    for number in order:
        ready = (done[one] + (gap_ns if streams[one] == streams[number] else wait_ns) for one in edges[number])
        done[number] = max(ready, default=0.0) + durations_ns[number]
    return max(done.values())


def everything_before(order, edges):
    before = {}
    for number in order:
        before[number] = set(edges[number]).union(*(before[one] for one in edges[number]))
    return before


@given(spreads(), st.sampled_from([(0.0, 0.0), (0.0, 1400.0), (200.0, 1400.0)]))
def test_fewer_waits_keep_what_is_needed_and_cost_no_time(drawn, costs):
    order, streams, needed, durations_ns = drawn
    plain = one_after_the_other(order, streams, needed)
    made = with_fewer_waits(order, streams, needed, durations_ns, *costs)
    assert sorted(made.order) == sorted(order)
    before = everything_before(made.order, made.edges)  # Fails where something comes before what it waits for.
    assert all(before[number] >= earlier for number, earlier in everything_before(order, plain).items())
    assert waits(made.edges, streams) <= waits(plain, streams)
    assert end_ns(made.order, made.edges, streams, durations_ns, *costs) <= end_ns(order, plain, streams, durations_ns, *costs) + 1e-6
    for earlier in made.edges:
        assert not any(one in before[other] for one in earlier for other in earlier)


def test_what_is_there_in_time_is_waited_for_once():
    # Ten short nodes on stream 1; each of ten long ones on stream 0 needs its own. All ten are done when the second long one begins.
    needed = ((), *((at, 10 + at) for at in range(9)), *((),) * 10)
    durations_ns, streams = [9000.0] * 10 + [500.0] * 10, [0] * 10 + [1] * 10
    made = with_fewer_waits([*range(10, 20), *range(10)], streams, needed, durations_ns, 0.0, 1000.0)
    assert waits(made.edges, streams) == 1
    assert made.edges[1] == (0, 18)


def test_what_has_time_waits_for_later_ones_of_the_longest_path():
    # A chain of four, each with a node on another stream that needs it, and a last node that needs all: the three first can wait.
    needed = ((), (0,), (1,), (2,), (0,), (1,), (2,), (3, 4, 5, 6))
    durations_ns, streams = [9000.0] * 4 + [1000.0] * 3 + [9000.0], [0] * 4 + [1] * 3 + [0]
    made = with_fewer_waits([0, 4, 1, 5, 2, 6, 3, 7], streams, needed, durations_ns, 0.0, 1000.0)
    assert made.edges[4:] == ((2,), (4,), (5,), (3, 6))


def test_what_takes_no_time_comes_before_what_waits_for_it():
    """All but the last begin and end at once: by their times alone, nothing says which comes first."""
    order, streams, needed, durations_ns = range(4), [0, 1, 0, 1], ((), (0,), (1,), (2,)), [0.0, 0.0, 0.0, 1000.0]
    made = with_fewer_waits(order, streams, needed, durations_ns, 0.0, 0.0)
    assert (made.order, made.edges) == ((0, 1, 2, 3), needed)


def test_what_would_come_late_is_waited_for_by_itself():
    needed = ((), (), (0,), (1, 2))
    made = with_fewer_waits([0, 2, 1, 3], [1, 1, 0, 0], needed, [1000.0, 9000.0, 1000.0, 1000.0], 0.0, 1000.0)
    assert made.edges == ((), (0,), (0,), (1, 2))
