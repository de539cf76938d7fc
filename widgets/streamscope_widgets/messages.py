"""Every message between a timeline in the browser and Python, and its fields.

``messages.js`` is the other half; a test holds both equal. Each message also has its ``type``, the key of the tables below.
"""

from collections.abc import Mapping
from typing import Any, NotRequired, TypedDict


class FramesOf(TypedDict):
    """Frames of a group's call tree."""

    group: int
    by: str
    """``code`` or ``range``."""
    numbers: list[int]


class Filter(TypedDict):
    """A search, by a name's code, by a text in lower case, or by the frames that launched spans."""

    code: int | None
    text: str
    frame: NotRequired[FramesOf]


class Ready(TypedDict):
    """A view exists, and wants the spans."""

    view: str


class Question(TypedDict):
    """Asks for the critical paths, and is the part that all questions have in common."""

    view: str
    id: str
    """Comes back with the answer."""


class TileQuestion(Question):
    """Asks for a part of a long trace."""

    windows: list[list[int] | None]
    """Level, reach and index of each group, as of `Tiles.tile`."""
    find: Filter | None
    paths: bool
    """With the critical path."""


class FindQuestion(Question):
    """Asks how often a search finds something."""

    find: Filter


class GoQuestion(Question):
    """Asks where a step from a row of a group leads."""

    how: str
    """``hit``, ``operation``, ``span``, or a key of ``tile_questions.STEPS``."""
    group: int
    span: int
    shown: list[int]
    """Groups from top to bottom."""
    find: Filter | None
    operation: NotRequired[int]
    """The wanted one, of the step ``operation``."""
    step: NotRequired[int]
    """1 for the next, -1 for the previous one, of the step ``hit``."""


class StartsQuestion(Question):
    """Asks when an operation begins on the device."""

    operation: int


class AreaOfGroup(TypedDict):
    """Rows of a group, as pairs of lane and row, in a stretch of its time in ns."""

    group: int
    start: float
    end: float
    rows: list[list[int]]


class TotalsQuestion(Question):
    """Asks for the sums of areas."""

    areas: list[AreaOfGroup]


class TreeQuestion(Question):
    """Asks where the time of a group's GPU goes by code."""

    group: int
    by: str
    """``code`` or ``range``; the other comes where the trace tells only that."""


class FrameQuestion(TreeQuestion):
    """Asks for the frame of a span."""

    span: int
    """Row of the trace."""


class CellQuestion(Question):
    """Asks which collective makes a cell of a job's map."""

    rank: int
    step: int


class ShowQuestion(Question):
    """Asks for other ranks of a job; the spans come for themselves, before the answer."""

    numbers: list[int]


class PathsAnswer(TypedDict):
    """The critical path of each group."""

    paths: list[dict[str, Any] | None]


class TileAnswer(TypedDict):
    """The headers of the groups' parts."""

    groups: list[dict[str, Any] | None]


class HitCounts(TypedDict):
    """Hits of a search in a group: how many on the device and on the host, and their starts in ns where they are few."""

    onDevice: int
    onHost: int
    starts: list[int]


class FindAnswer(TypedDict):
    """The hits in each group."""

    groups: list[HitCounts]


class GoAnswer(TypedDict):
    """The span that a step leads to; an empty header where there is none."""

    group: int
    span: int
    """Row of the trace."""
    start: int
    end: int
    position: int
    """Number of the hit, from 1 on; 0 for other steps."""
    hidden: NotRequired[str]
    """The span's lane, where that is not drawn."""


class StartsAnswer(TypedDict):
    """Start of the operation in each group, in ns; None where it does not run there."""

    starts: list[int | None]


class Sums(TypedDict):
    """Sums of an area: names as ``[key, count, ns]``; of each GPU kernels that start, ns with a kernel, ns with a kernel or a copy."""

    names: list[tuple[int, int, float]]
    gpus: list[tuple[int, float, float]]


class TotalsAnswer(TypedDict):
    """The sums of each area."""

    groups: list[Sums]


class DetailsAnswer(TypedDict):
    """The second bundle is the block."""


class TreeAnswer(TypedDict):
    """A call tree: frames, each after the one around it."""

    by: str
    other: bool
    """Whether there is a tree of the other kind, too."""
    gpu: int | None
    defined: bool
    """Whether lines are where functions are defined."""
    texts: list[str]
    count: int
    columns: dict[str, Any]
    rows: int
    """Spans of the group, whose frames are ``frame``."""
    frame: dict[str, Any] | None
    """Frame of each span, -1 for none; None where the browser does not have all spans."""


class FrameAnswer(TypedDict):
    """The frame of a span; -1 for none."""

    frame: int


class LineHeader(TypedDict):
    """A line of a lane: from each time on a value, until the next one."""

    name: str
    """Empty where the lane has one line."""
    count: int
    time: dict[str, Any]
    value: dict[str, Any]


class CounterLane(TypedDict):
    """A lane of a counter, or of a GPU's memory, whose unit is ``B`` and whose lines are filled."""

    label: str
    unit: str
    low: float
    """Range of its values; memory begins at 0."""
    high: float
    peak: float | None
    """When memory was highest, in ns."""
    lines: list[LineHeader]


class Marked(TypedDict):
    """Markers: their times, and which of the texts names each."""

    count: int
    time: dict[str, Any]
    name: dict[str, Any]
    texts: list[str]


class NoteHeader(TypedDict):
    """A note of the reader on a moment or a stretch, in ns; its number is that of tables."""

    number: int
    start: int
    end: int
    text: str
    lane: str


class CountersOfGroup(TypedDict):
    """Lanes, markers and notes of a group, and how many counters are left out."""

    lanes: list[CounterLane]
    left_out: int
    markers: Marked
    notes: list[NoteHeader]


class CountersAnswer(TypedDict):
    """Counters, markers, memory and notes of each group."""

    groups: list[CountersOfGroup]


class RanksAnswer(TypedDict):
    """The map of a job: ranks by steps."""

    numbers: list[int]
    """Numbers of all ranks, from top to bottom."""
    shown: list[int]
    steps: int
    several: int
    """Steps that share one."""
    most: float
    """The longest time, in ns."""
    late: list[tuple[int, str]]
    """Ranks that the others wait for, with words."""
    groups: list[tuple[str, list[int]]]
    """Names and places of ranks that communicate with each other."""
    waiting: dict[str, Any]
    awaited: dict[str, Any]
    """Of each rank and step, how long it waits, and how long others wait for it: 255 is the longest."""


class CellAnswer(TypedDict):
    """A part of a collective; -1 where the ranks of these ``numbers`` have to be shown first."""

    numbers: list[int]
    span: int
    start: int
    end: int


class ShowAnswer(TypedDict):
    """Nothing more."""


class Spans(TypedDict):
    """All spans, or the overview of a long trace, as `payload.encode` writes them; beside it goes the block."""

    view: str | None
    """The view that asked; None for all views."""
    header: dict[str, Any]


class Answer(TypedDict):
    """The answer to a question, or a header with ``refused``; beside it goes the block."""

    view: str
    id: str
    header: dict[str, Any]


ANSWERS: Mapping[str, type] = {
    "paths": PathsAnswer,
    "tile": TileAnswer,
    "find": FindAnswer,
    "go": GoAnswer,
    "starts": StartsAnswer,
    "totals": TotalsAnswer,
    "details": DetailsAnswer,
    "tree": TreeAnswer,
    "frame": FrameAnswer,
    "counters": CountersAnswer,
    "job": RanksAnswer,
    "cell": CellAnswer,
    "show": ShowAnswer,
}
"""Headers of the answers, by the type of the question."""

TO_PYTHON: Mapping[str, type] = {
    "ready": Ready,
    "paths": Question,
    "tile": TileQuestion,
    "find": FindQuestion,
    "go": GoQuestion,
    "starts": StartsQuestion,
    "totals": TotalsQuestion,
    "details": Question,
    "tree": TreeQuestion,
    "frame": FrameQuestion,
    "counters": Question,
    "job": Question,
    "cell": CellQuestion,
    "show": ShowQuestion,
}

TO_BROWSER: Mapping[str, type] = {"spans": Spans, "answer": Answer}
