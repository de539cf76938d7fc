"""Views: a variable's memory seen as another array, such as a transpose or a slice. An operation that reads one reads the variable."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from streamscope.arrays import Array
from streamscope.program.variable import ArraySpec

SECTOR_BYTES = 32
"""Sector in bytes: the least that memory hands out."""
_ALIGNED_BYTES = 256
"""Memory of its own begins at such addresses, so a view that does is as good."""

_ORIGIN = np.zeros(1, np.int8)
"""Address of arrays that only have a shape and strides: nothing may read their content."""


@dataclass(frozen=True)
class View:
    """How a variable's memory is seen: as another array, which begins somewhere in it and goes through it in other steps."""

    spec: ArraySpec
    """Shape and dtype of the view."""
    strides: tuple[int, ...]
    """For each axis, in elements; 0 where it repeats."""
    offset: int = 0
    """The element of the variable that comes first."""
    how: str = field(default="", compare=False)
    """As it is written behind the variable's name, for example ``[1:3].T``; views that are the same may have come about otherwise."""

    @property
    def contiguous(self) -> bool:
        """Whether its elements follow each other without gaps, last axis fastest."""
        return self.strides == row_major(self.spec.shape)

    @property
    def moved_bytes(self) -> int:
        """Bytes that memory hands out when all of it is read: repeated elements once, and at most whole sectors for scattered ones."""
        walked = [(extent, abs(stride)) for extent, stride in zip(self.spec.shape, self.strides, strict=True) if extent != 1 and stride]
        step = min((stride for _, stride in walked), default=1)
        itemsize = self.spec.dtype.itemsize
        elements = math.prod(extent for extent, _ in walked) if self.spec.size else 0
        return elements * max(itemsize, min(SECTOR_BYTES, step * itemsize))

    def through(self, function: Callable[[Array], Array], how: str) -> View:
        """Apply a function of NumPy's that makes a view: NumPy decides, and its errors pass."""
        # Bytes in the place of elements, so that addresses count elements; the memory is not there.
        seen = np.lib.stride_tricks.as_strided(_ORIGIN, self.spec.shape, self.strides, writeable=False)
        part = function(seen)
        if part.size and not np.may_share_memory(part, seen):
            raise ValueError("the result is not a view")
        spec = ArraySpec(part.shape, self.spec.dtype)
        if not spec.size:
            return View(spec, row_major(spec.shape), 0, _behind(self.how, how))
        regular = row_major(spec.shape)
        # The stride of an axis with one entry means nothing.
        strides = tuple(step if extent != 1 else usual for step, extent, usual in zip(part.strides, spec.shape, regular, strict=True))
        return View(spec, strides, self.offset + _address(part) - _address(seen), _behind(self.how, how))

    def of(self, values: Array) -> Array:
        """Return the view of a variable's values, read-only, and without a copy where they lie in one piece."""
        if not self.spec.size:
            return np.empty(self.spec.shape, values.dtype)
        seen = self._seen(np.ascontiguousarray(values))
        seen.flags.writeable = False
        return seen

    def put(self, values: Array, part: Array) -> None:
        """Write the view of a variable's values, which lie in one piece."""
        self._seen(values)[...] = part

    def _seen(self, values: Array) -> Array:
        memory: Any = values
        strides = tuple(values.itemsize * stride for stride in self.strides)
        return np.ndarray(self.spec.shape, values.dtype, memory, values.itemsize * self.offset, strides)

    def __str__(self) -> str:
        return self.how


def row_major(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the strides, in elements, of an array whose elements follow each other without gaps, last axis fastest."""
    return tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))


def whole(spec: ArraySpec) -> View:
    """Return a variable as it is."""
    return View(spec, row_major(spec.shape))


# What an operator can read as it is: `Operator.reads_view`.


def any_view(view: View) -> bool:
    """Accept every view: the operator follows strides."""
    return True


def forward_view(view: View) -> bool:
    """Accept views that do not go backwards."""
    return all(stride >= 0 for stride in view.strides)


def one_piece(view: View) -> bool:
    """Accept views without gaps, wherever they begin."""
    return view.contiguous


def like_new(view: View) -> bool:
    """Accept views that are like memory of their own: without gaps, and aligned as that is."""
    return view.contiguous and view.offset * view.spec.dtype.itemsize % _ALIGNED_BYTES == 0


@dataclass(frozen=True)
class Viewing:
    """A function of variables' values, given one that wants them as they are seen: `Launch.reference`, or `HostCall.function`."""

    function: Callable[..., Any]
    views: tuple[View | None, ...]
    """For each of its arguments."""
    listed: bool = True
    """It takes them as one list."""

    def __call__(self, *arguments: Any) -> Any:
        """Call the function with the views."""
        arrays = arguments[0] if self.listed else arguments
        seen = [array if view is None else view.of(array) for array, view in zip(arrays, self.views, strict=True)]
        return self.function(seen) if self.listed else self.function(*seen)


@dataclass(frozen=True)
class Placing:
    """A `Launch.reference` that writes a part of a variable, given one that returns the part."""

    function: Callable[[Sequence[Array]], Sequence[Array]]
    view: View
    """The part that is written."""
    spec: ArraySpec
    """Of the variable."""

    @property
    def keeps(self) -> bool:
        """Whether the variable has more elements: they stay, so it is read, too, as the last argument."""
        return self.view.spec.size < self.spec.size

    def __call__(self, arguments: Sequence[Array]) -> list[Array]:
        """Return the variable with its new part."""
        (part,) = self.function(arguments[: len(arguments) - self.keeps])
        result = np.array(arguments[-1], self.spec.dtype, order="C") if self.keeps else np.empty(self.spec.shape, self.spec.dtype)
        self.view.put(result, part)
        return [result]


def _behind(before: str, how: str) -> str:
    """Return how a view of a view is written; two transposes, one after the other, not at all."""
    return before.removesuffix(how) if how in (".T", ".mT") and before.endswith(how) else before + how


def _address(array: Array) -> int:
    return int(array.__array_interface__["data"][0])
