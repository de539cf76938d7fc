"""Doors for guests: formats, metrics, views, engines and devices that other packages add.

Each door is a registry of one kind of entry, and stands in the room that asks for its entries. Our own stand in its table, which is read
first, so that a tree that is run by ``PYTHONPATH=toolkit`` has them. Another package adds entries by an entry-point group:

    [project.entry-points."streamscope.formats"]
    chromium = "my_package.chromium:FORMAT"

``pyproject.toml`` lists our own entries under the same groups.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from importlib.metadata import EntryPoint, entry_points
from threading import RLock
from typing import Any, Generic, TypeVar

from streamscope.errors import printable

_Entry = TypeVar("_Entry")


class GuestWarning(UserWarning):
    """A package's entry was left out: it cannot be loaded, takes a name that is used, or lacks an attribute."""


class Door(Mapping[str, _Entry], Generic[_Entry]):
    """The entries of one kind, by name: our own in the order of their table, then those of other packages by their names.

    An own entry is loaded when it is first asked for. Guests are loaded together, when the door is first used.

    Parameters
    ----------
    kind : str
        Singular noun, for warnings: "format".
    own : Mapping of str to str
        Our own entries: name to ``module:attribute``.
    needs : tuple of str
        Attributes that an entry must have.
    """

    def __init__(self, kind: str, own: Mapping[str, str], needs: tuple[str, ...]) -> None:
        self.kind, self.own, self.needs = kind, own, needs
        self._loaded: dict[str, _Entry] = {}
        self._guests: dict[str, _Entry] | None = None
        self._lock = RLock()

    @property
    def group(self) -> str:
        """Entry-point group that other packages use."""
        return f"streamscope.{self.kind}s"

    def __getitem__(self, name: str) -> _Entry:
        if name not in self.own:
            return self.guests()[name]
        with self._lock:
            if name not in self._loaded:
                self._loaded[name] = EntryPoint(name, self.own[name], self.group).load()
            return self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        yield from self.own
        yield from self.guests()

    def __len__(self) -> int:
        return len(self.own) + len(self.guests())

    def __contains__(self, name: object) -> bool:
        return name in self.own or name in self.guests()

    def guests(self) -> dict[str, _Entry]:
        """Entries of other packages, by name. The first call loads them, and warns of each that is left out."""
        with self._lock:
            if self._guests is None:
                self._guests = {}  # A guest that uses the door while it is imported sees it without guests.
                points = sorted(entry_points(group=self.group), key=lambda point: (point.name, point.value))
                for point in points:
                    if self.own.get(point.name) != point.value:
                        self._let_in(point)
            return self._guests

    def _let_in(self, point: EntryPoint) -> None:
        assert self._guests is not None
        if point.name in self.own or point.name in self._guests:
            return self._left_out(point, "another one has that name")
        try:
            entry: Any = point.load()
        except Exception as error:  # noqa: BLE001 — a guest's module may fail in any way.
            return self._left_out(point, f"{type(error).__name__}: {printable(str(error))}")
        if missing := [name for name in self.needs if not hasattr(entry, name)]:
            return self._left_out(point, f"it has no attribute {missing[0]!r}")
        self._guests[point.name] = entry
        return None

    def _left_out(self, point: EntryPoint, why: str) -> None:
        package = point.dist.name if point.dist else point.value.partition(":")[0]
        said = f"{self.kind} {point.name!r} of the package {package!r} is left out: {why}"
        warnings.warn(said, GuestWarning, stacklevel=5)
