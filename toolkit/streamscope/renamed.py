"""Names that are gone: an error that tells the new one. `docs/renamed.md` lists them all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from streamscope.errors import UnknownAttributeError


class Renamed:
    """A class whose old names are told.

    ``renamed`` maps an attribute that was renamed to what to write now. Subclasses add their own.
    """

    renamed: ClassVar[Mapping[str, str]] = {}

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            raise unknown_attribute(self, name)


def unknown_attribute(thing: object, name: str, hint: str | None = None) -> BaseException:
    """Return the error of an attribute that a thing lacks. Its hint is the new name, or else ``hint``."""
    if hasattr(type(thing), name):  # A property of that name failed with an AttributeError, which Python takes for a missing name.
        try:
            object.__getattribute__(thing, name)
        except AttributeError as error:
            return error
    tables = [vars(each).get("renamed", {}) for each in type(thing).__mro__]
    new = next((table[name] for table in tables if name in table), None)
    said = f"{type(thing).__name__!r} object has no attribute {name!r}" + (" any more" if new else "")
    return UnknownAttributeError(said, hint=f"write {new}" if new else hint)
