"""Which arguments of a Triton kernel lead to memory that it reads or writes, from the text of its TTIR.

Triton's compiler hands out the text of each stage; TTIR is the one in which pointers are still those of the user's function. Each value is
followed from the arguments through the operations that make it. Every operation makes its results of all its operands here, so a value may
be said to come from more arguments than it does, never from fewer.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

ANYWHERE = -1
"""Stands, among arguments, for memory that no argument leads to: an address that was loaded, or made of a number."""

_NAME = r"%[\w$.\-]+(?:#\d+)?"
_NAMES = re.compile(_NAME)
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_OPERATION = re.compile(rf"^(?:(?P<results>{_NAME}(?::\d+)?(?:, *{_NAME}(?::\d+)?)*) *= *)?(?P<name>[a-z_]\w*(?:\.\w+)+)")
_FUNCTION = re.compile(r"^tt\.func\b[^@]*@(?P<name>[\w$.\-]+)\(")
_LABEL = re.compile(r"\^\w+")
_ARGUMENT = re.compile(rf"(?P<name>{_NAME}) *: *(?P<type>!?[^%]*)")

_READS = {"tt.load", "tt.descriptor_load", "tt.descriptor_gather"}
_WRITES = {"tt.store", "tt.atomic_rmw", "tt.atomic_cas", "tt.descriptor_store", "tt.descriptor_scatter", "tt.descriptor_reduce"}
_NO_MEMORY = re.compile(
    r"""(?:arith|math|scf|cf|ub|gpu)\.\w+
    |tt\.(?:reduce|scan)(?:\.return)?|tt\.func|tt\.return|tt\.print|tt\.assert
    |tt\.(?:addptr|advance|bitcast|broadcast|cat|clampf|dot|dot_scaled|expand_dims|extern_elementwise|fp_to_fp|gather|get_num_programs
    |get_program_id|histogram|join|make_range|make_tensor_descriptor|make_tensor_ptr|mulhiui|precise_divf|precise_sqrt|ptr_to_int|reshape
    |splat|split|trans|unsplat)$""",
    re.VERBOSE,
)
"""Operations that touch no memory. Any other reads and writes the memory at its operands."""
_FIRST = slice(0, 1)
_MADE_OF = {
    **dict.fromkeys(("tt.addptr", "tt.advance", "tt.make_tensor_ptr", "tt.make_tensor_descriptor"), _FIRST),
    "arith.select": slice(1, None),
    "scf.if": slice(0, 0),
}
"""The operands that a result is made of, where the others only say how far in, or which. A choice by branches gets its results there."""


@dataclass(frozen=True)
class KernelArguments:
    """Accesses of a kernel, by argument."""

    types: tuple[str, ...]
    """Type of each argument, as the text has it."""
    read: frozenset[int]
    written: frozenset[int]
    """The arguments that lead to memory which is read, and which is written; `ANYWHERE` among them stands for memory that no argument leads
    to."""

    @property
    def complete(self) -> bool:
        """Whether the arguments lead to all memory that the kernel touches."""
        return ANYWHERE not in self.read | self.written


@lru_cache(maxsize=4096)
def kernel_arguments(text: str) -> KernelArguments | None:
    """Return the accesses of the kernel in a TTIR text, by argument; None if the text is not understood.

    Examples
    --------
    >>> from streamscope.capturing.ttir import kernel_arguments
    >>> kernel_arguments('''module {
    ...   tt.func public @copy(%from: !tt.ptr<f32>, %to: !tt.ptr<f32>) {
    ...     %0 = tt.load %from : !tt.ptr<f32>
    ...     tt.store %to, %0 : !tt.ptr<f32>
    ...     tt.return
    ...   }
    ... }''')
    KernelArguments(types=('!tt.ptr<f32>', '!tt.ptr<f32>'), read=frozenset({0}), written=frozenset({1}))
    """
    functions = _functions(text)
    kernels = [one for one in functions.values() if one.public]
    return _effects(kernels[0], functions, ()) if len(kernels) == 1 else None


@dataclass
class _Function:
    """A function of the text, as lines whose strings and locations are taken out."""

    name: str
    public: bool
    arguments: list[tuple[str, str]]
    lines: list[str] = field(default_factory=list)


def _functions(text: str) -> dict[str, _Function]:
    found: dict[str, _Function] = {}
    current: _Function | None = None
    for line in _plain(text).split("\n"):
        start = _FUNCTION.match(line)
        if start is not None:
            listed = _ARGUMENT.finditer(line[start.end() : _closing(line, start.end())])
            arguments = [(one["name"], re.split(r"\s*[{,]", one["type"].rstrip(", "))[0].strip()) for one in listed]
            current = found[start["name"]] = _Function(start["name"], " public " in line[: start.end()], arguments)
        elif current is not None:
            current.lines.append(line)
    return found


def _plain(text: str) -> str:
    """Return a text without locations and attributes in words; a function whose name is a string has it as a plain name."""
    text = re.sub(r'@"([^"]*)"', lambda match: "@" + re.sub(r"\W", "_", match[1]), text)
    text = re.sub(r'"([a-z_]\w*(?:\.\w+)+)"\(', r"\1(", text)
    text = _STRING.sub('""', text)
    lines = (re.sub(r"//.*$", "", line).strip() for line in text.split("\n") if not line.startswith("#"))
    return "\n".join(_without_locations(line) for line in lines)


def _without_locations(line: str) -> str:
    while (at := line.find(" loc(")) >= 0:
        line = line[:at] + line[_closing(line, at + len(" loc(")) + 1 :]
    return line.rstrip()


def _closing(line: str, at: int) -> int:
    """Return where the bracket closes that was opened just before a place."""
    depth = 1
    for place in range(at, len(line)):
        depth += {"(": 1, ")": -1}.get(line[place], 0)
        if depth == 0:
            return place
    return len(line)


@dataclass
class _Region:
    """An operation that holds others: its results, block arguments that a yield feeds again, values for a second block."""

    name: str
    results: list[str]
    again: list[str]
    handed: list[str] = field(default_factory=list)


def _effects(function: _Function, functions: dict[str, _Function], callers: tuple[str, ...]) -> KernelArguments | None:
    flow = _Flow(function)
    if flow.lost:
        return None
    read: set[int] = set()
    written: set[int] = set()
    for name, operands, line in flow.touching:
        if name == "tt.call":
            callee = functions.get(line.split("@", 1)[-1].split("(", 1)[0])
            inner = None if callee is None or callee.name in callers else _effects(callee, functions, (*callers, function.name))
            if inner is None or len(inner.types) != len(operands):
                return None
            for into, of in ((read, inner.read), (written, inner.written)):
                into |= {each for one in of for each in ({ANYWHERE} if one == ANYWHERE else flow.origins(operands[one]))}
            continue
        if name in _READS | _WRITES:
            targets = flow.origins(operands[0]) or {ANYWHERE}
            read |= targets if name not in ("tt.store", "tt.descriptor_store", "tt.descriptor_scatter") else set()
            written |= targets if name in _WRITES else set()
        else:
            reached = set[int]().union(*map(flow.origins, operands))
            read |= reached
            written |= reached
    return KernelArguments(tuple(kind for _, kind in function.arguments), frozenset(read), frozenset(written))


class _Flow:
    """Sources of each value of a function."""

    def __init__(self, function: _Function) -> None:
        self.lost = False
        """Whether a line is none that can be followed."""
        self.touching: list[tuple[str, list[str], str]] = []
        """The operations that may touch memory: name, operands, line."""
        self._into: defaultdict[str, set[str]] = defaultdict(set)
        self._origins: defaultdict[str, set[int]] = defaultdict(set)
        self._blocks = dict(_blocks(function.lines))
        self._regions: list[_Region] = []
        for number, (name, _) in enumerate(function.arguments):
            self._origins[name] = {number}
        for line in function.lines:
            self._add(line)
        self._spread()

    def origins(self, value: str) -> set[int]:
        """Return the arguments that a value comes from."""
        return self._origins[value]

    def _add(self, line: str) -> None:
        if line.startswith("}"):
            region = self._regions.pop() if self._regions else _Region("", [], [])
            if line.endswith("{"):
                self._regions.append(region)
            return
        if line.startswith("^"):
            self._fed_block(line)
            return
        match = _OPERATION.match(line)
        if match is None:
            self.lost = self.lost or line not in ("", "module {")
            return
        name, rest = match["name"], line[match.end() :]
        results = list(_results(match["results"] or ""))
        again: list[str] = []
        if name in {"scf.for", "scf.while"}:
            again = self._loop(rest, results)
        elif name in ("scf.yield", "scf.condition", "tt.reduce.return", "tt.scan.return") and self._regions:
            self._yielded(name, _NAMES.findall(rest))
        elif name.startswith("cf."):
            self._branch(rest)
        else:
            self._operation(name, results, _NAMES.findall(rest), line)
        if line.endswith("{"):
            self._regions.append(_Region(name, results, again))

    def _operation(self, name: str, results: Sequence[str], operands: list[str], line: str) -> None:
        pure = _NO_MEMORY.match(name) is not None and "pure = false" not in line  # A function of a library may be called.
        if not pure:
            self.touching.append((name, operands, line))
        loads = name in _READS or name in ("tt.atomic_rmw", "tt.atomic_cas")
        for result in results:
            if not loads:
                self._feed(operands[_MADE_OF.get(name, slice(None))], result)
            if (not pure and not loads) or (loads and re.search(r"ptr<\s*!tt\.ptr", line)):
                # What an unknown operation returns may be an address; so is what is loaded through a pointer to pointers.
                self._origins[result].add(ANYWHERE)

    def _loop(self, rest: str, results: Sequence[str]) -> list[str]:
        """Feed the initial values of a loop to the arguments of its block and to its results; return these arguments."""
        pairs = re.findall(rf"({_NAME}) = ({_NAME})", rest.partition("iter_args")[2] if "iter_args" in rest else rest)
        for (argument, initial), result in zip(pairs, results or [""] * len(pairs), strict=False):
            self._feed([initial], argument)
            self._feed([initial], result)
        return [argument for argument, _ in pairs]

    def _yielded(self, name: str, values: list[str]) -> None:
        region = self._regions[-1]
        if name == "scf.condition":
            region.handed = values = values[1:]
            self._feed_each(values, region.results)
        elif region.name == "scf.while":
            self._feed_each(values, region.again)
        else:
            self._feed_each(values, region.results)
            self._feed_each(values, region.again)

    def _feed_each(self, values: Sequence[str], targets: Sequence[str]) -> None:
        """Feed values to as many targets one by one; where there are not as many, any may go to any."""
        for number, target in enumerate(targets):
            self._feed(values[number : number + 1] if len(values) == len(targets) else values, target)

    def _branch(self, rest: str) -> None:
        for label in _LABEL.finditer(rest):
            after = rest[label.end() :]
            values = _NAMES.findall(after[1 : _closing(after, 1)]) if after.startswith("(") else []
            for value, target in zip(values, self._blocks.get(label[0], []), strict=False):
                self._feed([value], target)

    def _fed_block(self, line: str) -> None:
        """Feed the arguments of a block inside an operation: the second block of a while loop."""
        if self._regions and self._regions[-1].name == "scf.while":
            self._feed_each(self._regions[-1].handed, _NAMES.findall(line))

    def _feed(self, values: Iterable[str], target: str) -> None:
        for value in values:
            self._into[value].add(target)

    def _spread(self) -> None:
        pending = list(self._origins)
        while pending:
            value = pending.pop()
            for target in self._into[value]:
                if not self._origins[value] <= self._origins[target]:
                    self._origins[target] |= self._origins[value]
                    pending.append(target)


def _results(text: str) -> Iterator[str]:
    """Return the names of an operation's results; ``%a:2`` stands for ``%a#0`` and ``%a#1``."""
    for name, _, count in (one.strip().partition(":") for one in text.split(",") if one.strip()):
        yield from [f"{name}#{number}" for number in range(int(count))] if count else [name]


def _blocks(lines: Iterable[str]) -> Iterator[tuple[str, list[str]]]:
    """Return the arguments of each labelled block."""
    for line in lines:
        if line.startswith("^"):
            label, _, arguments = line.partition("(")
            yield label.rstrip(":"), _NAMES.findall(arguments)
