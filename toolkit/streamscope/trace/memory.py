"""Memory over time: which allocations a GPU or the host held, from when to when, and who took them."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from streamscope.arrays import IntArray
from streamscope.errors import TraceError
from streamscope.trace.columns import Columns, columns_of, holds, indexed, none
from streamscope.trace.file_checks import MOST_NS, listed_texts, named_values
from streamscope.trace.launch_sites import Site, are_sites, listed_sites, stored_sites

if TYPE_CHECKING:
    import pandas as pd

BEFORE, HELD = -MOST_NS, MOST_NS
"""Start of memory that was held before the trace began, and end of memory that was not given back in it, in ns."""
BEFORE_THE_RECORDING = "before the recording"
"""Kind of memory that was held before the trace began, of which no more is known."""
_HOST = -1


class Level(IntEnum):
    """Who holds an allocation: pools take memory of the driver and lend it to tensors."""

    ALLOCATED = 0
    """Lent to the user: a tensor, a variable, a block of a pool."""
    RESERVED = 1
    """Taken from the driver: a segment of a pool, or ``cudaMalloc``."""


class Allocation(NamedTuple):
    """One allocation; `Allocations.of` makes a table of them."""

    bytes: int
    start_ns: int = BEFORE
    end_ns: int = HELD
    gpu: int = 0
    """-1 for the host."""
    level: Level = Level.ALLOCATED
    kind: str = ""
    """Such as ``"PyTorch"``, ``"parameter"``; empty where it is not known."""
    name: str = ""
    """Operator or operation that took it; empty where it is not known."""
    site: Site | None = None
    operation: int = -1


@dataclass(frozen=True, eq=False, repr=False)
class Allocations(Columns):
    """Allocations as equally long columns, sorted by ``start_ns``.

    What the source knows as a total only, such as all that was held before it began, is a row, too: the rows of a GPU and a level add up
    to the allocator's own total at each moment. Memory that is given back at a moment is gone then.

    Attributes
    ----------
    start_ns, end_ns : int64 arrays
        Since the trace's zero, as the times of its spans. ``start_ns`` is `BEFORE` where it was held before the trace began, ``end_ns`` is
        `HELD` where it was not given back.
    bytes : int64 array
    gpu : int32 array
        -1 for the host.
    level : uint8 array
        `Level`.
    kind, name : int32 arrays
        Index into ``texts``: the kind of memory, such as ``"PyTorch"`` or ``"parameter"``, and the operator or operation that took it; -1
        where it is not known.
    site : int32 array
        Index into ``sites`` of the line and module that took it; -1 where it is not known.
    operation : int32 array
        Operation of the program, as in the table of spans; -1 where it is not known.
    texts : tuple of str
    sites : tuple of Site

    Raises
    ------
    TraceError
        A column is not as said here, or there are more than 1,000,000 allocations.

    Examples
    --------
    >>> from streamscope.trace import Allocation, Allocations
    >>> memory = Allocations.of([Allocation(4096, 10, 30, name="relu"), Allocation(1 << 20, kind="parameter")])
    >>> len(memory), memory.kinds, memory.names
    (2, ['parameter', ''], ['', 'relu'])
    """

    start_ns: IntArray = field(default_factory=none, repr=False, metadata=holds(np.int64))
    end_ns: IntArray = field(default_factory=none, repr=False, metadata=holds(np.int64))
    bytes: IntArray = field(default_factory=none, repr=False, metadata=holds(np.int64))
    gpu: IntArray = field(default_factory=none, repr=False, metadata=holds(np.int32, _HOST))
    level: IntArray = field(default_factory=none, repr=False, metadata=holds(np.uint8))
    kind: IntArray = field(default_factory=none, repr=False, metadata=holds(np.int32, -1, of="texts"))
    name: IntArray = field(default_factory=none, repr=False, metadata=holds(np.int32, -1, of="texts"))
    site: IntArray = field(default_factory=none, repr=False, metadata=holds(np.int32, -1, of="sites"))
    operation: IntArray = field(default_factory=none, repr=False, metadata=holds(np.int32, -1))
    texts: tuple[str, ...] = field(default=(), metadata=indexed())
    sites: tuple[Site, ...] = field(default=(), metadata=indexed(are_sites, "Site"))

    NOUN: ClassVar = "allocations"
    MOST: ClassVar = 1_000_000

    def __post_init__(self) -> None:
        super().__post_init__()
        if int(self.level.max(initial=0)) >= len(Level):
            raise TraceError("level of allocations must be a Level")
        if (np.diff(self.start_ns) < 0).any() or (self.end_ns < self.start_ns).any():
            raise TraceError("allocations must be sorted by their starts, and none may end before it starts")
        if float(self.bytes.sum(dtype=np.float64)) >= 2.0**62:
            raise TraceError("allocations have more bytes than any memory")

    @classmethod
    def of(cls, rows: Iterable[Allocation]) -> Self:
        """Make them of rows in any order."""
        ordered = sorted(rows, key=lambda one: one.start_ns)
        if not ordered:
            return cls()
        texts: dict[str, int] = {"": -1}
        sites: dict[Site | None, int] = {None: -1}
        columns: dict[str, Sequence[Any]] = dict(zip(Allocation._fields, zip(*ordered, strict=True), strict=True))
        known: dict[Any, int]
        for name, known in (("kind", texts), ("name", texts), ("site", sites)):
            columns[name] = [known.setdefault(one, len(known) - 1) for one in columns[name]]
        arrays = {name: np.array(column, np.int64) for name, column in columns.items()}
        return cls(**arrays, texts=tuple(text for text in texts if text), sites=tuple(site for site in sites if site is not None))

    @property
    def kinds(self) -> list[str]:
        """Kind of each allocation; empty where it is not known."""
        return self.words("kind")

    @property
    def names(self) -> list[str]:
        """Operator or operation that took each allocation; empty where it is not known."""
        return self.words("name")

    def rows(self, chosen: npt.NDArray[Any]) -> Self:
        """Return the rows that a mask, or an index array in rising order, picks."""
        return self._with({name: getattr(self, name)[chosen] for name in columns_of(type(self))})

    def of_gpu(self, gpu: int) -> Self:
        """Return the allocations of one GPU, and those of the host."""
        return self.rows((self.gpu == gpu) | (self.gpu == _HOST))

    def since(self, zero_ns: int) -> Self:
        """Return them on a clock with this zero."""
        moved = {
            name: np.where(np.abs(column) == MOST_NS, column, np.clip(column - zero_ns, BEFORE + 1, HELD - 1))
            for name, column in (("start_ns", self.start_ns), ("end_ns", self.end_ns))
        }
        return self._with(moved)

    def _with(self, columns: Mapping[str, Any]) -> Self:
        """Return them with other columns, which need no check, as texts and sites do not: there may be very many."""
        found = copy(self)
        for name, column in columns.items():
            object.__setattr__(found, name, column)
        return found

    def to_pandas(self) -> pd.DataFrame:
        """Return one row for each allocation: its columns, with texts in the place of indices, and the fields of its site."""
        import pandas as pd

        numbers = {name: getattr(self, name) for name in ("start_ns", "end_ns", "bytes", "gpu")}
        levels = [Level(level).name.lower() for level in self.level.tolist()]
        sites = (*self.sites, Site())
        of_row = [sites[code] for code in self.site.tolist()]
        told = {key: [getattr(each, key) for each in of_row] for key in ("function", "file", "line", "module")}
        return pd.DataFrame({**numbers, "level": levels, "kind": self.kinds, "name": self.names, "operation": self.operation, **told})

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON values. Columns are packed, since there may be very many rows: `packed` says how."""
        columns = {name: packed(getattr(self, name)) for name in columns_of(type(self))}
        return {"rows": len(self), **columns, "texts": list(self.texts), "sites": listed_sites(self.sites)}

    @classmethod
    def _stored(cls, stored: Mapping[str, Any]) -> dict[str, Any]:
        rows = stored["rows"]
        if type(rows) is not int or not 0 <= rows <= cls.MOST:
            raise ValueError(f"{rows!r:.20} is not a number of allocations")
        columns: dict[str, Any] = {name: unpacked(stored[name], rows) for name in columns_of(cls)}
        return columns | {"texts": listed_texts(stored["texts"]), "sites": stored_sites(named_values(stored["sites"]))}


def packed(values: IntArray) -> str:
    """Pack whole numbers into a text: differences of 64 bits, the lowest byte of all first, then the next one; by zlib and base64."""
    differences = np.diff(values.astype("<i8"), prepend=0).astype("<i8")
    planes = differences.view(np.uint8).reshape(-1, 8).T
    return base64.b64encode(zlib.compress(planes.tobytes(), 6)).decode()


def unpacked(text: Any, rows: int) -> npt.NDArray[np.int64]:
    """Read the text of `packed`, of so many numbers.

    Raises
    ------
    TypeError, ValueError
        It is something else.
    """
    reader = zlib.decompressobj()
    try:
        data = reader.decompress(base64.b64decode(text, validate=True), 8 * rows + 1)
    except zlib.error as error:
        raise ValueError(f"a column of allocations is damaged: {error}") from error
    if len(data) != 8 * rows or (rows and not reader.eof):
        raise ValueError(f"a column of allocations has not the {rows:,} numbers that it should have")
    planes = np.frombuffer(data, np.uint8).reshape(8, rows)
    return np.cumsum(np.ascontiguousarray(planes.T).view("<i8").reshape(-1), dtype=np.int64)
