"""Columns of numbers that a trace keeps beside its spans."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from streamscope.arguments import shown
from streamscope.arrays import IntArray
from streamscope.errors import TraceError
from streamscope.trace.file_checks import MOST_NS, is_tuple_of_texts, listed_texts, named_values

if TYPE_CHECKING:
    import pandas as pd


def holds(dtype: npt.DTypeLike, least: int = 0, of: str = "") -> dict[str, Any]:
    """Return the metadata of a field that is a column: its dtype, its least value, and the tuple that its numbers index."""
    return {"dtype": dtype, "least": least, "of": of}


def indexed(fits: Callable[[object], bool] = is_tuple_of_texts, kind: str = "texts") -> dict[str, Any]:
    """Return the metadata of a field that is a tuple which columns index: its check, and the kind of its items."""
    return {"fits": fits, "kind": kind}


def none() -> IntArray:
    """Return an empty column, as the default of a field."""
    return np.zeros(0, np.int64)


def columns_of(table: type[Any]) -> dict[str, Mapping[str, Any]]:
    """Return the metadata of each column of a dataclass."""
    return {each.name: each.metadata for each in fields(table) if "dtype" in each.metadata}


class Columns:
    """Base of the dataclasses with equally long columns of whole numbers, or of finite ones.

    Columns whose names end with ``_ns`` hold times of a trace. Beside them there may be tuples that they index: `holds` names them.
    """

    texts: tuple[str, ...]

    NOUN: ClassVar[str]
    """Name of the rows in errors."""
    MOST: ClassVar[int]
    """Rows that a trace keeps."""

    def __post_init__(self) -> None:
        """Check the columns and cast them.

        Raises
        ------
        TraceError
            A column has another length or values out of range, a tuple other items, or there are too many rows.
        """
        rows = len(self)
        for name, wanted in columns_of(type(self)).items():
            values = np.asarray(getattr(self, name))
            real = np.dtype(wanted["dtype"]).kind == "f"
            if values.shape != (rows,) or values.dtype.kind not in ("iuf" if real else "iu"):
                what = "numbers" if real else "whole numbers"
                raise TraceError(f"{name} of {self.NOUN} must be {rows} {what}, not {values.dtype} of shape {values.shape}")
            if rows and real:
                if not np.isfinite(values).all():
                    raise TraceError(f"{name} of {self.NOUN} must be finite")
            elif rows:
                most = MOST_NS if name.endswith("_ns") else int(np.iinfo(wanted["dtype"]).max)
                least = -MOST_NS if name.endswith("_ns") else wanted["least"]
                if not least <= values.min() <= values.max() <= most:
                    raise TraceError(f"{name} of {self.NOUN} must be from {least:,} to {most:,}")
            object.__setattr__(self, name, values.astype(wanted["dtype"], copy=False))
        if len(self) > self.MOST:
            raise TraceError(f"{len(self):,} {self.NOUN} are too many: a trace keeps {self.MOST:,}")
        for each in fields(self):  # type: ignore[arg-type]
            given, wanted = getattr(self, each.name), each.metadata
            if "fits" in wanted and not wanted["fits"](given):
                raise TraceError(f"{each.name} of {self.NOUN} must be a tuple of {wanted['kind']}, not {shown(given)}")
        for name, wanted in columns_of(type(self)).items():
            if wanted["of"] and int(getattr(self, name).max(initial=-1)) >= (count := len(getattr(self, wanted["of"]))):
                raise TraceError(f"{name} of {self.NOUN} must index {wanted['of']}, whose length is {count}")

    def __repr__(self) -> str:
        """Return class and number of rows: texts, and sites with their callers, can be a million characters."""
        return f"<{type(self).__name__}: {len(self):,} {self.NOUN}>"

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(getattr(self, next(iter(columns_of(type(self))))))

    def __eq__(self, other: object) -> bool:
        """Tell whether the columns are equal, and the tuples that they index."""
        return type(other) is type(self) and all(
            np.array_equal(*pair) if isinstance(pair[0], np.ndarray) else pair[0] == pair[1]
            for pair in ((getattr(self, each.name), getattr(other, each.name)) for each in fields(self))  # type: ignore[arg-type]
        )

    __hash__ = None  # type: ignore[assignment]

    def words(self, column: str) -> list[str]:
        """Return the texts of a column, one a row; empty where they are not known."""
        coded = [name for name, wanted in columns_of(type(self)).items() if wanted["of"] == "texts"]
        if column not in coded:
            raise TraceError(f"column {shown(column)} of {self.NOUN} has no texts", hint=f"one of {', '.join(coded)}")
        texts = (*self.texts, "")
        return [texts[code] for code in getattr(self, column).tolist()]

    def to_pandas(self) -> pd.DataFrame:
        """Return the columns as a DataFrame, with texts in the place of their numbers."""
        import pandas as pd

        columns = columns_of(type(self)).items()
        return pd.DataFrame({name: self.words(name) if wanted["of"] == "texts" else getattr(self, name) for name, wanted in columns})

    def to_dict(self) -> dict[str, Any]:
        """Return the columns as JSON values, and their texts."""
        columns = {name: getattr(self, name).tolist() for name in columns_of(type(self))}
        return columns | ({"texts": list(self.texts)} if hasattr(self, "texts") else {})

    @classmethod
    def from_dict(cls, stored: Any) -> Self:
        """Read the values of `to_dict`; empty where nothing was stored.

        Raises
        ------
        LookupError, TypeError, ValueError, TraceError
            It is something else.
        """
        return cls() if stored is None else cls(**cls._stored(named_values(stored)))

    @classmethod
    def _stored(cls, stored: Mapping[str, Any]) -> dict[str, Any]:
        columns: dict[str, Any] = {name: np.asarray(stored[name]) if len(stored[name]) else none() for name in columns_of(cls)}
        return columns | ({"texts": listed_texts(stored["texts"])} if hasattr(cls, "texts") else {})


class SpanColumns(Columns):
    """Columns whose rows each say more of one span: ``span`` is its row in the table. They are sorted by it."""

    span: IntArray

    def __post_init__(self) -> None:
        """Check the columns and cast them; no span may be there twice."""
        super().__post_init__()
        if (np.diff(self.span) <= 0).any():
            raise TraceError(f"{self.NOUN} must be sorted by their spans, each of which is there once")

    def at(self, new_row: npt.NDArray[Any]) -> Self:
        """Return the columns for another table of spans: ``new_row`` has the new row of each old one, -1 where it is gone."""
        span = new_row[self.span]
        order = np.argsort(span, kind="stable")
        order = order[span[order] >= 0]
        columns: dict[str, Any] = {name: getattr(self, name)[order] for name in columns_of(type(self))}
        return replace(self, **columns | {"span": span[order]})  # type: ignore[type-var]


@dataclass(frozen=True, eq=False)
class Blocks(Columns):
    """Blocks as equally long columns, sorted by ``start_ns``.

    A block belongs to the kernel of the same operation and part within whose times it lies.

    Attributes
    ----------
    operation, part : int32 and int16 arrays
        Which launch of the program it is of.
    multiprocessor : int16 array
        Number of the multiprocessor that ran it; the numbers may have gaps.
    start_ns, end_ns : int64 arrays
        Since the trace's zero, as the times of its spans.

    Raises
    ------
    TraceError
        A column is not as said here, or there are more than 200,000 blocks.
    """

    operation: IntArray = field(default_factory=none, repr=False, metadata=holds(np.int32))
    part: IntArray = field(default_factory=none, repr=False, metadata=holds(np.int16))
    multiprocessor: IntArray = field(default_factory=none, repr=False, metadata=holds(np.int16))
    start_ns: IntArray = field(default_factory=none, repr=False, metadata=holds(np.int64))
    end_ns: IntArray = field(default_factory=none, repr=False, metadata=holds(np.int64))

    NOUN: ClassVar = "blocks"
    MOST: ClassVar = 200_000

    def __post_init__(self) -> None:
        super().__post_init__()
        if (np.diff(self.start_ns) < 0).any() or (self.end_ns < self.start_ns).any():
            raise TraceError("blocks must be sorted by their starts, and none may end before it starts")
