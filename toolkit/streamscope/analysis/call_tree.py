"""Where the GPU's time goes by code, as a tree of frames: what a flame chart draws."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

import numpy as np

from streamscope.analysis.code import UNKNOWN, Costs, class_of, costs_of, line_key, ranges_around
from streamscope.arguments import shown
from streamscope.arrays import BoolArray, IntArray
from streamscope.errors import TraceError
from streamscope.trace.launch_sites import Site
from streamscope.trace.nesting import enclosing, with_outer
from streamscope.trace.spans import SpanKind
from streamscope.trace.trace import Trace
from streamscope.words import a_kind

if TYPE_CHECKING:
    import pandas as pd

TreeBy = Literal["code", "range"]
NOT_ATTRIBUTED = "not attributed"
"""Name of the frame of work without a launch call in the trace."""
SMALLER = "smaller frames"
"""Name of the frames that stand for those below the size that a tree keeps."""
MOST_FRAMES = 20_000
COSTS = ("kernels", "gpu_ns", "exposed_ns", "idle_ns")
"""Rows of `CallTree.costs`."""


class Frame(NamedTuple):
    """One frame of a call tree."""

    name: str
    file: str = ""
    line: int = 0
    kind: str = "kernel"
    """``"module"``, ``"function"``, ``"line"``, ``"range"``, ``"kernel"`` (also a copy or a set), or ``"unknown"``."""


@dataclass(frozen=True, eq=False)
class CallTree:
    """Result of `call_tree`: frames, each after the frame around it. The first one is the whole GPU.

    Attributes
    ----------
    frames : tuple of Frame
    parent : int32 array
        Index of the frame around each; -1 for the first.
    costs : int64 array, shape (4, n)
        Number of kernels, GPU time, exposed communication and idle time caused, in ns, of each frame with all frames in it. `by_code`
        defines them.
    span : int64 array
        Rows of the table of spans with work of the GPU.
    frame : int32 array
        Innermost frame of each of these rows.
    by : str
        ``"code"`` or ``"range"``.
    gpu : int or None
        Which GPU the numbers are of: the busiest, where the trace has several.
    defined : bool
        Whether a line is where a function is defined, and not the one that launched.
    """

    frames: tuple[Frame, ...]
    parent: IntArray = field(repr=False)
    costs: IntArray = field(repr=False)
    span: IntArray = field(repr=False)
    frame: IntArray = field(repr=False)
    by: str = "code"
    gpu: int | None = None
    defined: bool = False

    def path(self, number: int) -> tuple[Frame, ...]:
        """Return a frame and those around it, the outermost first; the whole GPU is left out.

        Examples
        --------
        >>> function, inputs = ss.workload("branches").build()
        >>> runs = ss.compare(function, *inputs, engines="async", device="simulated", progress=False)
        >>> tree = ss.analysis.call_tree(runs["async"].trace)
        >>> [frame.kind for frame in tree.path(len(tree.frames) - 1)]
        ['line', 'kernel']
        """
        found = list[Frame]()
        while number > 0:
            found.append(self.frames[number])
            number = int(self.parent[number])
        return tuple(reversed(found))

    def under(self, *numbers: int) -> IntArray:
        """Return the rows of spans that belong to some frames, or to a frame in them."""
        inside = np.zeros(len(self.frames), bool)
        inside[list(numbers)] = True
        for each, around in enumerate(self.parent.tolist()):
            inside[each] |= around >= 0 and inside[around]
        found: IntArray = self.span[inside[self.frame]]
        return found

    def to_pandas(self) -> pd.DataFrame:
        """Return one row for each frame, times in ns."""
        import pandas as pd

        costs = dict(zip(COSTS, self.costs, strict=True))
        return pd.DataFrame(self.frames, columns=list(Frame._fields)).assign(parent=self.parent, **costs)


def call_tree(trace: Trace, by: TreeBy = "code", communication: Iterable[str] = ()) -> CallTree:
    """Divide a GPU's time among the frames of the code that launched its work: what a flame chart draws.

    Numbers are those of `by_code`, which counts each work where its innermost line, module or range is. Here it counts in all frames
    around it, too. By code, frames are the modules and lines of programs and captures, the lines and modules of `record` with
    ``stacks=True``, or the functions and modules of a profiler's stacks. By range, they are the labels of a program, or the ranges
    around the launch call on its thread. The innermost frame is the kernel, copy or set itself. Work whose launch the trace does not
    tell lies in a frame `UNKNOWN`, work without a launch call in ``"not attributed"``, with the idle time after the last work.

    Parameters
    ----------
    trace : Trace
        Of several GPUs, the busiest counts; ``trace.of_gpu(n)`` gives another.
    by : {"code", "range"}
    communication : iterable of str
        Patterns of yours for kernels that communicate, as `work_of` takes them.

    Returns
    -------
    CallTree
        At most 20,000 frames. The smallest ones of a larger tree are joined, each with its neighbours.

    Raises
    ------
    TraceError
        ``by`` is something else, or ``trace`` is not a trace.

    Examples
    --------
    >>> function, inputs = ss.workload("branches").build()
    >>> runs = ss.compare(function, *inputs, engines="async", device="simulated", progress=False)
    >>> tree = ss.analysis.call_tree(runs["async"].trace)
    >>> tree.frames[0].name, int(tree.costs[0, 0])
    ('GPU', 35)
    >>> tree.frames[1].file, tree.frames[1].line, int(tree.costs[0, 1])
    ('programs.py', 68, 32)
    """
    if not isinstance(trace, Trace):
        raise TraceError(f"call_tree divides the time of a trace, not of {a_kind(trace)}", hint='a run has one: runs["graph"].trace')
    if by not in [*get_args(TreeBy)]:
        raise TraceError(f"a call tree is by code or by range, not by {shown(by)}", hint='by="code"')
    costs = costs_of(trace, communication)
    return _pruned(_of_costs(costs, by), MOST_FRAMES)


def times_with_inside(costs: Costs) -> dict[str, tuple[int, set[str]]]:
    """Return by class of modules the GPU time, in ns, with all modules inside, and the names of its modules.

    A module inside another one of its class counts once.
    """
    tree, found = _of_costs(costs, "code"), dict[str, tuple[int, set[str]]]()
    around: list[frozenset[str]] = []
    for number, (frame, parent) in enumerate(zip(tree.frames, tree.parent.tolist(), strict=True)):
        outer = around[parent] if parent >= 0 else frozenset()
        if frame.kind == "module":
            name = class_of(frame.name)
            time_ns, modules = found.get(name, (0, set[str]()))
            found[name] = time_ns + (0 if name in outer else int(tree.costs[1, number])), modules | {frame.name}
            outer |= {name}
        around.append(outer)
    return found


def _of_costs(costs: Costs, by: str) -> CallTree:
    spans, device = costs.trace.spans, costs.device
    tree = _Tree()
    around = _contexts(costs, by, tree)
    unknown, rest = (tree.child(0, Frame(name, kind="unknown")) for name in (UNKNOWN, NOT_ATTRIBUTED))
    around = np.where(around > 0, around, np.where(costs.call >= 0, unknown, rest))
    used, which = np.unique(around * len(spans.names) + spans.name[device], return_inverse=True)
    pairs = [divmod(code, len(spans.names)) for code in used.tolist()]
    leaves = [tree.child(context, Frame(spans.names[name])) for context, name in pairs]
    frame = np.array(leaves, np.int64)[which.reshape(-1)]
    parent = np.array(tree.parent, np.int32)
    sums = costs.sums(frame, len(parent))
    sums[3, rest] += costs.tail_ns
    for number in range(len(parent) - 1, 0, -1):
        sums[:, parent[number]] += sums[:, number]
    defined = any(site.defined for site in costs.trace.sites.sites) and by == "code"
    whole = CallTree(tuple(tree.frames), parent, sums, span=costs.span, frame=frame.astype(np.int32), by=by, gpu=costs.gpu, defined=defined)
    return _kept(whole, (sums != 0).any(axis=0))


class _Tree:
    """Frames that are told apart by their own words and by those around them."""

    def __init__(self) -> None:
        self.parent, self.frames = [-1], [Frame("GPU")]
        self._numbers = dict[tuple[int, Frame], int]()

    def child(self, around: int, frame: Frame) -> int:
        """Return the number of a frame in another, a new one where it is seen for the first time."""
        number = self._numbers.setdefault((around, frame), len(self.frames))
        if number == len(self.frames):
            self.parent.append(around)
            self.frames.append(frame)
        return number


def _contexts(costs: Costs, by: str, tree: _Tree) -> IntArray:
    """Return the frame around each kernel, copy or set; 0 where the trace does not tell it."""
    trace, device = costs.trace, costs.device
    spans, sites = trace.spans, trace.sites
    found = np.zeros(len(spans) + 1, np.int64)
    if by == "range":
        found[device] = _range_frames(costs, tree)
    elif len(sites):
        found[sites.span] = np.array([_site_frame(site, tree) for site in sites.sites], np.int64)[sites.site]
    of_operation = np.array([*_operation_frames(trace, by, tree), 0], np.int64)
    operation = spans.operation[device]
    own = of_operation[np.where((operation >= 0) & (operation < len(of_operation)), operation, -1)]
    return np.where(own > 0, own, found[device])


def _site_frame(site: Site, tree: _Tree) -> int:
    """Return the frame of a site in those of its callers. Each adds a module or a function to the one around it."""
    inside, before, around = 0, Site(), set[str]()
    for each in (*site.callers, site):
        for name in _modules(each.module) if each.module != before.module else []:
            if name not in around:  # A path of attributes names the modules around, too.
                inside = tree.child(inside, Frame(name, kind="module"))
        around.update(_modules(each.module))
        if each[:3] != before[:3] or each.module == before.module:
            kind = "function" if each.defined else "line"
            inside = (
                tree.child(inside, Frame(each.function or each.file, each.file, each.line, kind)) if each.function or each.file else inside
            )
        before = each
    return inside


def _operation_frames(trace: Trace, by: str, tree: _Tree) -> list[int]:
    """Return the frame of each operation of a program or a capture; 0 where it is not known."""
    found = list[int]()
    words = trace.origins.words()
    captured = any("operator" in each for each in words)
    for each in words:
        label = each.get("label", "")
        module = each.get("module", label if captured else "")
        number = 0
        if by == "range":
            for name in (module, each.get("operator", "")) if captured else (label,):
                number = tree.child(number, Frame(name, kind="range")) if name else number
        else:
            for name in _modules(module):
                number = tree.child(number, Frame(name, kind="module"))
            if key := line_key(each.get("line", "")):
                number = tree.child(number, Frame(key.name, key.file, key.line, "line"))
        found.append(number)
    return found


def _modules(path: str) -> list[str]:
    """Return the modules around each other that a path such as ``"encoder.0.query"`` names, each with its whole path."""
    parts = path.split(".") if path else []
    return [".".join(parts[: at + 1]) for at in range(len(parts))]


def _range_frames(costs: Costs, tree: _Tree) -> IntArray:
    """Return the frame of the innermost range around each launch call; 0 where there is none."""
    spans = costs.trace.spans
    inner = ranges_around(spans, costs.call)
    ranges = np.flatnonzero(spans.kind == SpanKind.RANGE)
    around = np.full(len(spans), -1, np.int64)
    for lane in np.unique(spans.lane[ranges]).tolist():
        rows = ranges[spans.lane[ranges] == lane]
        outer = enclosing(spans.start_ns[rows], spans.end_ns[rows])
        around[rows] = np.where(outer >= 0, rows[outer], -1)
    needed = with_outer(inner, around)
    number = {-1: 0}
    for row in needed[np.lexsort((-spans.end_ns[needed], spans.start_ns[needed]))].tolist():
        number[row] = tree.child(number[int(around[row])], Frame(spans.names[spans.name[row]], kind="range"))
    return np.array([number[row] for row in inner.tolist()], np.int64)


def _kept(tree: CallTree, kept: BoolArray) -> CallTree:
    """Return a tree with some of its frames, and all of those around them."""
    number = np.cumsum(kept) - 1
    parent = np.where(tree.parent >= 0, number[tree.parent], -1)[kept].astype(np.int32)
    frames = tuple(frame for frame, keep in zip(tree.frames, kept.tolist(), strict=True) if keep)
    return replace(tree, frames=frames, parent=parent, costs=tree.costs[:, kept], frame=number[tree.frame].astype(np.int32))


def _pruned(tree: CallTree, most: int) -> CallTree:
    """Return a tree of so many frames at most: the smallest ones are joined to one in each frame."""
    if len(tree.frames) <= most:
        return tree
    size = tree.costs[1:].max(axis=0)
    # A frame is as large as any in it, so all that is around a kept one is kept. Each may have a joined one in it, which makes it half.
    kept = size > np.partition(size, -(most // 2))[-(most // 2)]
    kept[0] = True
    top = np.flatnonzero(~kept)[kept[tree.parent[~kept]]]
    outer, which = np.unique(tree.parent[top], return_inverse=True)
    stands = np.arange(len(tree.frames))
    stands[top] = len(tree.frames) + which
    for number in np.flatnonzero(~kept & (stands < len(tree.frames))).tolist():
        stands[number] = stands[tree.parent[number]]
    joined = np.stack([np.bincount(which, column, len(outer)).astype(np.int64) for column in tree.costs[:, top]])
    whole = replace(
        tree,
        frames=(*tree.frames, *[Frame(SMALLER, kind="unknown")] * len(outer)),
        parent=np.concatenate([tree.parent, outer]),
        costs=np.concatenate([tree.costs, joined], axis=1),
        frame=stands[tree.frame],
    )
    return _kept(whole, np.concatenate([kept, np.ones(len(outer), bool)]))
