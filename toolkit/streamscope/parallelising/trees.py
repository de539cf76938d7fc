"""Trees of arguments and results: taken apart into arrays and put together again.

A tree is a value without its arrays: which tuples, lists, sets, mappings and dataclasses hold them, and the other values
between them, which are constants. Small arrays of numbers in host memory are constants, too. Mappings have their keys in an order, as a
loop over them sees it. The same array twice is one array, so a tree also tells which arguments were the same.
"""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, MutableMapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import partial
from io import IOBase
from itertools import islice
from operator import itemgetter
from types import ModuleType
from typing import Any

import numpy as np

from streamscope.arguments import shown
from streamscope.capturing.arrays import copy_of, holds_numbers
from streamscope.errors import ProgramError
from streamscope.words import counted

NOT_IN_ORDER = ", not in the order "
"""Before the keys that are wanted, in a `difference` of nothing but their order."""
_MOST_ELEMENTS = 1_000
"""Elements of a collection of an unknown class that are looked at."""
_DEEPEST = 100
"""Levels of a tree; a list that holds itself has no end of them."""

_IsArray = Callable[[object], bool]
Path = str
"""How to reach a part of a tree from its root: ``"batch['image'][0]"``."""


@dataclass(frozen=True)
class Array:
    """The place of an array, by its number."""

    number: int


@dataclass(frozen=True, eq=False)
class _Constant:
    """A value that is not an array and holds none that is known."""

    value: Any


@dataclass(frozen=True, eq=False)
class Held(_Constant):
    """Numbers in host memory, such as lengths of sequences: a copy, of which everybody gets another one."""


@dataclass(frozen=True, eq=False)
class _Branch:
    """A container."""

    kind: type
    names: tuple[Any, ...]
    """The key, index or field of each part; of a set, the number in its order."""
    parts: tuple[Tree, ...]
    shell: MutableMapping[Any, Any] | None = None
    """A copy of a mapping that knows more than its parts, such as a ``defaultdict``, with None for each."""


Tree = Array | _Constant | _Branch


def tuple_of(parts: Sequence[Tree]) -> Tree:
    """Return the tree of a tuple."""
    return _Branch(tuple, tuple(range(len(parts))), tuple(parts))


def taken_apart(value: object, is_array: _IsArray, root: Path = "") -> tuple[list[Any], Tree]:
    """Return the arrays of a value, each once, and its tree; errors name the value as ``root``."""
    arrays: list[Any] = []
    tree = _apart(value, is_array, arrays, {}, root, 0)
    return arrays, tree


def _apart(part: Any, is_array: _IsArray, arrays: list[Any], numbers: dict[int, int], path: Path, depth: int) -> Tree:
    # Not a function inside the one above: it would hold the arrays until the collector comes, and a tensor all that its gradient needs.
    if depth > _DEEPEST:
        raise ProgramError(f"a value is nested more than {_DEEPEST} levels deep", hint="does a list or a dictionary hold itself?")
    if holds_numbers(part):
        return Held(copy_of(part))
    if is_array(part):
        number = numbers.setdefault(id(part), len(arrays))
        if number == len(arrays):
            arrays.append(part)
        return Array(number)
    names = _names(part)
    if names is None:
        _check_constant(part, is_array, path)
        return _Constant(part)
    kind = type(part)
    if issubclass(kind, set | frozenset) and any(map(is_array, part)):
        raise ProgramError(f"{path or 'the value'} is a {kind.__name__} of arrays, whose order is by chance", hint="pass a list")
    pairs = zip(names, _parts(part, names), strict=True)
    parts = tuple(_apart(each, is_array, arrays, numbers, _path(path, kind, name), depth + 1) for name, each in pairs)
    return _Branch(kind, names, parts, _shell(part))


def _check_constant(value: Any, is_array: _IsArray, path: Path) -> None:
    """Check that an object that is not a container holds no arrays: others put there later would not be seen.

    A callable object, such as a module, keeps its arrays as a function does.
    """
    if callable(value) or isinstance(value, ModuleType):
        return
    where, kind = path or "the value", type(value).__name__
    if isinstance(value, Iterator) and not isinstance(value, IOBase):
        raise ProgramError(f"{where} is a {kind}, which is used up by one call", hint="hand over a list of what it yields")
    if any(map(is_array, _elements(value))):
        raise ProgramError(f"{where} is a {kind} that holds arrays, and captured code would not see others there", hint="hand over a list")
    slots = {name for each in type(value).__mro__ for name in _names_of_slots(each) if hasattr(value, name)}
    for name, held in {**getattr(value, "__dict__", {}), **{name: getattr(value, name) for name in slots}}.items():
        if is_array(held) or any(map(is_array, _elements(held))):
            raise ProgramError(
                f"{where} is a {kind}, whose {name!r} holds an array, and captured code would not see another one there",
                hint=f"hand over {where}.{name} itself, make the class a dataclass, or bind the object with functools.partial",
            )


def _elements(value: Any) -> Iterable[Any]:
    """Return the first elements of a collection, or the values of a mapping; nothing of anything else."""
    if isinstance(value, str | bytes | range) or not isinstance(value, Collection):
        return ()
    return tuple(islice(value.values() if isinstance(value, Mapping) else value, _MOST_ELEMENTS))


def _names_of_slots(kind: type) -> Iterable[str]:
    slots = kind.__dict__.get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(slots)


def _shell(value: Any) -> MutableMapping[Any, Any] | None:
    if type(value) in (dict, OrderedDict) or dataclasses.is_dataclass(value) or not isinstance(value, MutableMapping):
        return None
    shell = copy(value)
    for name in list(shell):
        shell[name] = None
    return shell


def put_together(tree: Tree, arrays: Sequence[Any], held: list[tuple[Any, Any]] | None = None) -> Any:
    """Return the value that a tree and its arrays make; ``held`` gets its numbers in host memory, each with the copy that stands for it."""
    if isinstance(tree, Array):
        return arrays[tree.number]
    if isinstance(tree, Held):
        own = copy_of(tree.value)
        if held is not None:
            held.append((tree.value, own))
        return own
    if isinstance(tree, _Constant):
        return tree.value
    parts = [put_together(part, arrays, held) for part in tree.parts]
    if dataclasses.is_dataclass(tree.kind):
        given = dict(zip(tree.names, parts, strict=True))
        aside = [(each.name, given.pop(each.name)) for each in dataclasses.fields(tree.kind) if not each.init and each.name in given]
        found = tree.kind(**given)
        for name, part in aside:
            object.__setattr__(found, name, part)  # Frozen ones, too.
        return found
    if tree.shell is not None:
        whole = copy(tree.shell)
        whole.update(zip(tree.names, parts, strict=True))
        return whole
    if issubclass(tree.kind, Mapping):
        return tree.kind(dict(zip(tree.names, parts, strict=True)))  # type: ignore[call-arg]
    return tree.kind(*parts) if hasattr(tree.kind, "_fields") else tree.kind(parts)  # type: ignore[call-arg]


Matcher = Callable[[Any, list[Any]], bool]
"""Tells whether a value has a tree, and puts its arrays into a list."""


def matcher(tree: Tree, is_array: _IsArray) -> Matcher:
    """Return a function that matches values with a tree. It is compiled, since each call asks, and a function a part is slower."""
    written = _Demands({"is_array": is_array, "same": same, "names_of": _names, "same_names": _same_names, "parts_of": _parts})
    written.match(tree, "value")
    # No text of anybody's is in it: names and values are bound.
    exec("\n ".join(["def match(value, found):", *written.lines, "return True"]), written.known)  # noqa: S102
    # Its globals must not hold it: in a circle, what the tree holds would wait for Python's collector.
    compiled: Matcher = written.known.pop("match")
    return compiled


@dataclass
class _Demands:
    """Lines of Python that return False where a value has another tree."""

    known: dict[str, Any]
    """What the lines name."""
    lines: list[str] = field(default_factory=list)
    _places: dict[int, str] = field(default_factory=dict)
    """The variable of each array."""

    def match(self, tree: Tree, value: str) -> None:
        """Add what a variable has to be."""
        if isinstance(tree, Array):
            first = self._places.setdefault(tree.number, value)
            self._demand(f"is_array({value})" if first == value else f"{value} is {first}")
            self.lines.append(f"found[{tree.number}] = {value}")
        elif isinstance(tree, Held):
            self._demand(f"{self._bound(_numbers_matcher(tree.value))}({value})")
        elif isinstance(tree, _Constant):
            self._demand(self._is_same(tree.value, value))
        else:
            self._match_parts(tree, value)

    def _match_parts(self, tree: _Branch, value: str) -> None:
        plain, by_name = tree.kind in (list, tuple), tree.kind in (dict, OrderedDict)
        self._demand(f"type({value}) is {self._bound(tree.kind)}")
        if plain or by_name:
            self._demand(f"len({value}) == {len(tree.parts)}")
        else:
            self._demand(f"same_names({self._bound(tree)}, names_of({value}))")
        if by_name:
            for name, known in zip(self._unpacked(len(tree.names), value), tree.names, strict=True):
                self._demand(self._is_same(known, name))
        all_parts = value if plain else f"{value}.values()" if by_name else f"parts_of({value}, {self._bound(tree.names)})"
        for part, name in zip(tree.parts, self._unpacked(len(tree.parts), all_parts), strict=True):
            self.match(part, name)

    def _is_same(self, constant: Any, value: str) -> str:
        kind, known = type(constant), self._bound(constant)
        alike = f"same({known}, {value})"
        if kind in (int, str, bool) or (kind is float and constant):  # Not 0.0, which has a sign; nor NaN, which `same` asks for.
            alike = f"{value} == {known} or {alike}"
        # The class says that a value is neither a container nor an array.
        return f"{value} is {known} or (type({value}) is {self._bound(kind)} and ({alike}))"

    def _demand(self, condition: str) -> None:
        self.lines.append(f"if not ({condition}): return False")

    def _unpacked(self, count: int, values: str) -> list[str]:
        names = [f"part{len(self.lines)}_{number}" for number in range(count)]
        self.lines.extend([f"{', '.join(names)}, = {values}"] if names else [])
        return names

    def _bound(self, value: Any) -> str:
        name = f"known{len(self.known)}"
        self.known[name] = value
        return name


def _numbers_matcher(known: Any) -> Callable[[Any], bool]:
    """Return a function that matches numbers in host memory: most by their list, which takes a microsecond, the others by `same`."""
    kind, dtype, shape, listed = type(known), known.dtype, known.shape, known.tolist()
    signed = not listed or isinstance(listed, complex)  # 0.0 has a sign, and equals -0.0.

    def alike(value: Any) -> bool:
        if kind is not np.ndarray and (not value.is_cpu or value.requires_grad or value.is_nested or value.layout is not known.layout):
            return False
        return not signed and value.dtype == dtype and value.shape == shape and bool(value.tolist() == listed)

    return lambda value: (type(value) is kind and alike(value)) or (holds_numbers(value) and same(known, value))


def maker(tree: Tree) -> Callable[[Sequence[Any]], Any]:
    """Return a function that puts arrays together as `put_together` does, for a tree that is made again and again."""
    if isinstance(tree, Array):
        return itemgetter(tree.number)
    if not isinstance(tree, _Branch) or tree.kind not in (list, tuple, dict):
        return partial(put_together, tree)
    kind, names, parts = tree.kind, tree.names, [maker(part) for part in tree.parts]
    numbers = [part.number for part in tree.parts if isinstance(part, Array)]
    if kind is dict:
        return lambda arrays: {name: make(arrays) for name, make in zip(names, parts, strict=True)}
    if len(numbers) == len(parts) > 1:
        get = itemgetter(*numbers)
        return get if kind is tuple else lambda arrays: list(get(arrays))
    return lambda arrays: kind([make(arrays) for make in parts])


def parts_of(tree: Tree) -> dict[Any, Tree]:
    """Return the parts of a container by their names; none of anything else."""
    return dict(zip(tree.names, tree.parts, strict=True)) if isinstance(tree, _Branch) else {}


def paths(tree: Tree, root: Path = "") -> list[Path]:
    """Return how each array is reached, by its number; by the first of its places."""
    found: dict[int, Path] = {}
    for path, part in leaves(tree, root):
        if isinstance(part, Array):
            found.setdefault(part.number, path)
    return [found[number] for number in sorted(found)]


def difference(tree: Tree, other: Tree, root: Path = "") -> str:
    """Return where a tree first differs from the one that is wanted, in words; nothing where a value of the ``other`` fits the ``tree``."""
    return _difference(tree, other, root, {})


def _difference(tree: Tree, other: Tree, root: Path, numbers: dict[int, int]) -> str:
    """Return the first difference; ``numbers`` are those of the other tree's arrays, by the number of the tree's."""
    if isinstance(tree, _Branch) and isinstance(other, _Branch) and tree.kind is other.kind:
        if not _same_names(tree, other.names):
            if tree.kind in (tuple, list, set, frozenset):
                return f"{root or 'the call'} has {counted(len(other.names), 'element')}, not {len(tree.names):,}"
            if set(tree.names) == set(other.names):
                had, wanted = (", ".join(map(repr, each.names)) for each in (other, tree))
                return f"{root or 'the call'} has its keys in the order {had}{NOT_IN_ORDER}{wanted}"
            return f"{root or 'the call'} has {_listed(other.names)}, not {_listed(tree.names)}"
        parts = zip(tree.names, tree.parts, other.parts, strict=True)
        return next(filter(None, (_difference(one, two, _path(root, tree.kind, name), numbers) for name, one, two in parts)), "")
    if isinstance(tree, Array) and isinstance(other, Array):
        same_one = numbers.setdefault(tree.number, other.number) == other.number
        return "" if same_one else f"{root} is another array than one beside it, which was the same"
    if isinstance(tree, Array) and isinstance(other, Held):
        return ""  # An array that lies elsewhere, as its shape and place say.
    if isinstance(tree, _Constant) and isinstance(other, _Constant) and same(tree.value, other.value):
        return ""
    return f"{root or 'the call'} is {_in_words(other)}, not {_in_words(tree)}"


_WITH_SIGNED_ZEROS = float, complex, np.inexact


def same(one: Any, other: Any) -> bool:
    """Tell whether two constants are the same: one object, or equal values of one type. NaN is the same as NaN, and 0.0 is not -0.0."""
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    if isinstance(one, _WITH_SIGNED_ZEROS):
        return repr(one) == repr(other)  # Digits that tell each number from its neighbours, and signs.
    try:
        if holds_numbers(one):
            alike = one.dtype == other.dtype and one.shape == other.shape
            return alike and (same(one.item(), other.item()) if one.ndim == 0 else bool((one == other).all()))
        return bool(one == other or (one != one and other != other))  # noqa: PLR0124 — what NaN is
    except Exception:  # noqa: BLE001 — a user's class may compare as it likes
        return False


def _names(value: Any) -> tuple[Any, ...] | None:
    """Return the names of a container's parts; None for any other object."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return tuple(field.name for field in dataclasses.fields(value) if field.init or hasattr(value, field.name))
    if isinstance(value, Mapping):
        return tuple(value)
    if isinstance(value, tuple | list):
        return getattr(value, "_fields", None) or tuple(range(len(value)))
    return tuple(range(len(value))) if isinstance(value, set | frozenset) else None


def _same_names(tree: _Branch, names: tuple[Any, ...] | None) -> bool:
    """Tell whether a container of the kind of a branch has its parts; a function may loop over a mapping, so its order counts."""
    return names is not None and len(names) == len(tree.names) and all(map(same, tree.names, names))


def _parts(value: Any, names: Sequence[Any]) -> list[Any]:
    if dataclasses.is_dataclass(value):
        return [getattr(value, name) for name in names]
    return [value[name] for name in names] if isinstance(value, Mapping) else list(value)


def leaves(tree: Tree, root: Path) -> Iterator[tuple[Path, Tree]]:
    """Yield the arrays and constants of a tree, each with how it is reached."""
    if isinstance(tree, _Branch):
        for name, part in zip(tree.names, tree.parts, strict=True):
            yield from leaves(part, _path(root, tree.kind, name))
    else:
        yield root, tree


def _path(root: Path, kind: type, name: Any) -> Path:
    """Return the path of a part; those of the root itself are names of arguments."""
    if not root:
        return str(name)
    by_name = dataclasses.is_dataclass(kind) or hasattr(kind, "_fields")
    return f"{root}.{name}" if by_name else f"{root}[{name!r}]"


def _listed(names: Sequence[Any]) -> str:
    return ", ".join(map(str, names)) or "nothing"


def _in_words(tree: Tree) -> str:
    if isinstance(tree, Array):
        return "an array"
    return shown(tree.value) if isinstance(tree, _Constant) else f"a {tree.kind.__name__}"
