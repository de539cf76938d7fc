"""The bounded cache."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from streamscope.engines.pushed.catalogue import RecentlyUsed


@given(st.lists(st.integers(0, 20)), st.integers(1, 5))
def test_what_was_used_last_is_kept_and_the_rest_is_bounded(keys, size):
    dropped = []
    cache = RecentlyUsed(size, lambda key, value: dropped.append(key))
    present = set()
    for position, key in enumerate(keys):
        found = cache[key]
        if found is None:
            cache.put(key, key)
            present.add(key)
        else:
            assert found == key
        present -= set(dropped)
        dropped.clear()
        assert len(cache) == len(present) <= 2 * size
        recent = list(dict.fromkeys(reversed(keys[: position + 1])))[:size]
        assert set(recent) <= present


def test_forget_and_clear():
    cache = RecentlyUsed(2)
    for key in range(3):
        cache.put(key, str(key))
    cache.forget(0)
    cache.forget(5)
    assert (cache[0], cache[1], cache[2]) == (None, "1", "2")
    cache.clear()
    assert len(cache) == 0
