"""Doors for guests: formats, metrics, views, engines and devices that other packages add.

Each door is a registry of one kind of entry, and stands in the room that asks for its entries. Our own stand in its table, which is read
first, so that a tree that is run by ``PYTHONPATH=toolkit`` has them. Another package adds entries by an entry-point group:

    [project.entry-points."streamscope.formats"]
    chromium = "my_package.chromium:FORMAT"

``pyproject.toml`` lists our own entries under the same groups.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping
from importlib.metadata import EntryPoint, entry_points
from threading import RLock
from typing import Generic, TypeVar, cast

from streamscope.errors import described, printable
from streamscope.words import a_kind

_Entry = TypeVar("_Entry")
_NAME = re.compile(r"\w[\w.-]*")
"""Names stand in lists with commas, and in names of files."""


class GuestWarning(UserWarning):
    """A package's entry was left out: it cannot be loaded, takes a name that is used, is no such entry, or fails."""


class Door(Mapping[str, _Entry], Generic[_Entry]):
    """The entries of one kind, by name: our own in the order of their table, then those of other packages by their names.

    An own entry is loaded when it is first asked for. Guests are loaded together, when the door is first used.

    Parameters
    ----------
    kind : str
        Singular noun, for warnings: "format".
    own : Mapping of str to str
        Our own entries: name to ``module:attribute``.
    form : type
        Class of the entries, or a protocol that can be checked. A ``name`` of an entry is that of its entry point.
    reserved : tuple of str
        Names that mean something else where an entry is named.
    """

    def __init__(self, kind: str, own: Mapping[str, str], form: type, reserved: tuple[str, ...] = ()) -> None:
        self.kind, self.own, self.form, self._reserved = kind, own, form, reserved
        self._loaded: dict[str, _Entry] = {}
        self._guests: dict[str, _Entry] | None = None
        self._packages: dict[str, str] = {}
        self._lock = RLock()

    @property
    def group(self) -> str:
        """Entry-point group that other packages use."""
        return f"streamscope.{self.kind}s"

    def __getitem__(self, name: str) -> _Entry:
        if name not in self.own:
            return self.guests()[name]
        # Without the lock: another thread may import that module, and ask the door meanwhile.
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
                guests = [point for point in points if self.own.get(point.name) != point.value]
                # All are in before the first warning, which may be an error for whoever runs this.
                for said in [said for point in guests if (said := self._let_in(point))]:
                    warnings.warn(said, GuestWarning, stacklevel=3)
            return self._guests

    def named(self, guest: str) -> str:
        """Name an entry of another package for errors: ``view 'slowest' of the package 'steplog'``."""
        return f"{self.kind} {guest!r} of the package {self._packages.get(guest, 'unknown')!r}"

    def warn(self, name: str, error: BaseException) -> None:
        """Warn that a guest failed and is left out."""
        warnings.warn(f"{self.named(name)} is left out: {printable(described(error))}", GuestWarning, stacklevel=3)

    def _let_in(self, point: EntryPoint) -> str:
        """Load a guest; return why it is left out, or nothing."""
        assert self._guests is not None
        why, package = "", point.dist.name if point.dist else point.value.partition(":")[0]
        try:
            if point.name in self.own or point.name in self._guests:
                why = "another one has that name"
            elif point.name in self._reserved or not _NAME.fullmatch(point.name):
                why = "that cannot be its name"
            elif not isinstance(entry := point.load(), self.form):
                why = f"it is {a_kind(entry)}, not a {self.form.__name__}"
            elif (name := getattr(entry, "name", point.name)) != point.name:
                why = f"it calls itself {name!r}"
            else:
                self._guests[point.name], self._packages[point.name] = cast("_Entry", entry), package
        except Exception as error:  # noqa: BLE001 — a guest's module may fail in any way.
            why = printable(described(error))
        return why and f"{self.kind} {point.name!r} of the package {package!r} is left out: {why}"
