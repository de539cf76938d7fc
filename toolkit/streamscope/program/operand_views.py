"""Views of variables in traced operations: views of their inputs, and the parts that they write, put into their launches.

An operator's work is made before that is known, and names operands behind a view by a number below zero: -1 less the operand's place.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from streamscope.program.launch import Launch
from streamscope.program.symbol import Symbol
from streamscope.program.view import Placing, View, Viewing


def kept_in_part(targets: Sequence[Symbol]) -> frozenset[int]:
    """Return the targets of which a part is written, and the rest stays; before it is noted that they are written."""
    return frozenset(target.id for target in targets if target.seen is not None and target.size < target.base.size and target.written)


def operands(
    sources: Sequence[Symbol], targets: Sequence[Symbol], kept: Iterable[int]
) -> tuple[tuple[int, ...], tuple[tuple[int, View | None], ...]]:
    """Return the variables that an operation reads, each once, and with how each is seen; the latter only if any is seen otherwise.

    A variable of which a part is written, and the rest stays, is read, too: those in ``kept``.
    """
    seen = tuple(dict.fromkeys((source.id, source.seen) for source in sources))
    viewed = any(view is not None for _, view in seen) or any(target.seen is not None for target in targets)
    return tuple(dict.fromkeys([*(variable for variable, _ in seen), *kept])), seen if viewed else ()


def seen_reads(reads: Sequence[int], sources: Sequence[Symbol]) -> tuple[tuple[int, ...], tuple[View | None, ...]]:
    """Return the variables behind some inputs, and the view of each; no views where all are whole."""
    views = tuple(sources[-1 - read].seen if read < 0 else None for read in reads)
    return tuple(sources[-1 - read].id if read < 0 else read for read in reads), views if any(views) else ()


def seeing_launch(launch: Launch, sources: Sequence[Symbol]) -> Launch:
    """Return a launch with the views through which it reads; its cost is that of the memory sectors behind them."""
    if min(launch.reads, default=0) >= 0:
        return launch
    reads, views = seen_reads(launch.reads, sources)
    more = sum(view.moved_bytes - view.spec.nbytes for view in views if view is not None)
    cost = replace(launch.cost, bytes=max(0, launch.cost.bytes + more))
    reference = Viewing(launch.reference, views) if launch.reference is not None else None
    return replace(launch, reads=reads, views=views, cost=cost, reference=reference)


def placing(launch: Launch, targets: Sequence[Symbol], kept: Collection[int]) -> Launch:
    """Return a launch that writes a part of a variable, of one that writes all of a variable like the part."""
    target = next((target for target in targets if target.id in launch.writes), None)
    view = None if target is None else target.seen
    if target is None or view is None:
        return launch
    cost = replace(launch.cost, bytes=launch.cost.bytes + view.moved_bytes - view.spec.nbytes)
    stays = (target.id,) if target.id in kept else ()
    reference = None if launch.reference is None else Placing(launch.reference, view, target.base.spec)
    return replace(launch, reads=(*launch.reads, *stays), reference=reference, cost=cost, written=(view,))
