"""Memory accesses of Triton's kernels of this process, by parameter: the user's own, and those of torch.compile.

Triton's compiler hands out the text of each stage; TTIR is the one in which pointers are still those of the user's function. Each value is
followed from the arguments through the operations that make it. Every operation makes its results of all its operands here, so a value may
be said to come from more arguments than it does, never from fewer.
"""

from __future__ import annotations

import base64
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Any

from streamscope.capturing.allocations import known_objects
from streamscope.capturing.prototypes import Role, closing
from streamscope.kernels.library.libraries import libraries

ANYWHERE = -1
"""Stands, among arguments, for memory that no argument leads to: an address that was loaded, or made of a number."""

_NAME = r"%[\w$.\-]+(?:#\d+)?"
_NAMES = re.compile(_NAME)
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_OPERATION = re.compile(rf"^(?:(?P<results>{_NAME}(?::\d+)?(?:, *{_NAME}(?::\d+)?)*) *= *)?(?P<name>[a-z_]\w*(?:\.\w+)+)")
_FUNCTION = re.compile(r"^tt\.func\b")
_ARGUMENT = re.compile(rf"(?P<name>{_NAME}) *: *(?P<type>!?[^%]*)")

_READS = {"tt.load", "tt.descriptor_load", "tt.descriptor_gather"}
_WRITES = {"tt.store", "tt.atomic_rmw", "tt.atomic_cas", "tt.descriptor_store", "tt.descriptor_scatter", "tt.descriptor_reduce"}
_ONLY_WRITES = {"tt.store", "tt.descriptor_store", "tt.descriptor_scatter"}
_HAND_ON = {"scf.yield", "scf.condition", "tt.reduce.return", "tt.scan.return", "cf.br", "cf.cond_br", "cf.switch"}
_LOOPS = {"scf.for", "scf.while"}
"""Operations whose values reach their results by way of the blocks inside."""
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
    >>> from streamscope.capturing.triton_kernels import kernel_arguments
    >>> kernel_arguments('''module {
    ...   tt.func public @copy(%from: !tt.ptr<f32>, %to: !tt.ptr<f32>) {
    ...     %0 = tt.load %from : !tt.ptr<f32>
    ...     tt.store %to, %0 : !tt.ptr<f32>
    ...     tt.return
    ...   }
    ... }''')
    KernelArguments(types=('!tt.ptr<f32>', '!tt.ptr<f32>'), read=frozenset({0}), written=frozenset({1}))
    """
    lines = _plain(text).split("\n")
    starts = [number for number, line in enumerate(lines) if _FUNCTION.match(line)]
    if len(starts) != 1:
        return None
    first = lines[starts[0]]
    opened = first.index("(") + 1
    listed = list(_ARGUMENT.finditer(first[opened : closing(first, opened)]))
    flow = _Flow([one["name"] for one in listed], lines[starts[0] + 1 :])
    types = tuple(re.split(r"\s*[{,]", one["type"].rstrip(", "))[0].strip() for one in listed)
    return None if flow.lost else KernelArguments(types, *flow.touched())


def _plain(text: str) -> str:
    """Return a text without locations and attributes in words."""
    text = re.sub(r'"([a-z_]\w*(?:\.\w+)+)"\(', r"\1(", text)
    text = _STRING.sub('""', text)
    lines = (re.sub(r"//.*$", "", line).strip() for line in text.split("\n") if not line.startswith("#"))
    return "\n".join(_without_locations(line) for line in lines)


def _without_locations(line: str) -> str:
    while (at := line.find(" loc(")) >= 0:
        line = line[:at] + line[closing(line, at + len(" loc(")) + 1 :]
    return line.rstrip()


@dataclass
class _Region:
    """An operation that holds others, or the whole function: the values that it hands on, and the names that get them, in rows."""

    values: list[list[str]] = field(default_factory=list)
    targets: list[list[str]] = field(default_factory=list)

    def flows(self) -> Iterator[tuple[str, str]]:
        """Yield values with their targets: one by one where a row has as many of both, else any may go to any."""
        for values, targets in product(self.values, self.targets):
            yield from zip(values, targets, strict=True) if len(values) == len(targets) else product(values, targets)


class _Flow:
    """Sources of each value of a function."""

    def __init__(self, arguments: Sequence[str], lines: Iterable[str]) -> None:
        self.lost = False
        """Whether a line is none that can be followed."""
        self._touching: list[tuple[str, list[str]]] = []
        """The operations that may touch memory, with their operands."""
        self._into: defaultdict[str, set[str]] = defaultdict(set)
        self._origins: defaultdict[str, set[int]] = defaultdict(set, {name: {number} for number, name in enumerate(arguments)})
        self._regions = [_Region()]
        for line in lines:
            self._add(line)
        for region in self._regions:
            self._end(region)
        self._spread()

    def touched(self) -> tuple[frozenset[int], frozenset[int]]:
        """Return the arguments that lead to memory which is read, and to memory which is written."""
        read, written = set[int](), set[int]()
        for name, operands in self._touching:
            known = name in _READS | _WRITES
            targets = self._origins[operands[0]] or {ANYWHERE} if known else set[int]().union(*(self._origins[one] for one in operands))
            read |= targets if name not in _ONLY_WRITES else set()
            written |= targets if name in _WRITES or not known else set()
        return frozenset(read), frozenset(written)

    def _add(self, line: str) -> None:
        match = _OPERATION.match(line)
        if line.startswith("}"):
            if not line.endswith("{") and len(self._regions) > 1:
                self._end(self._regions.pop())
        elif line.startswith("^"):
            self._regions[-1].targets.append(_NAMES.findall(line))
        elif match is None or match["name"] == "tt.call":  # Few kernels call a function that Triton has not put in its place.
            self.lost = self.lost or line != ""
        else:
            self._operation(match["name"], list(_results(match["results"] or "")), line[match.end() :], line)

    def _operation(self, name: str, results: list[str], rest: str, line: str) -> None:
        operands = _NAMES.findall(rest)
        if name in _HAND_ON:
            self._regions[-1].values.append(operands[name in ("scf.condition", "cf.cond_br") :])
        elif name not in _LOOPS:
            self._plain_operation(name, results, operands, line)
        if line.endswith("{"):
            pairs = re.findall(rf"({_NAME}) = ({_NAME})", rest.partition("iter_args")[2] if name == "scf.for" else rest)
            self._regions.append(_Region([[initial for _, initial in pairs]], [results, [argument for argument, _ in pairs]]))

    def _plain_operation(self, name: str, results: Iterable[str], operands: list[str], line: str) -> None:
        pure = _NO_MEMORY.match(name) is not None and "pure = false" not in line  # A function of a library may be called.
        if not pure:
            self._touching.append((name, operands))
        loads = name in _READS or name in ("tt.atomic_rmw", "tt.atomic_cas")
        for result in results:
            for operand in () if loads else operands[_MADE_OF.get(name, slice(None))]:
                self._into[operand].add(result)
            if (not pure and not loads) or (loads and re.search(r"ptr<\s*!tt\.ptr", line)):
                # What an unknown operation returns may be an address; so is what is loaded through a pointer to pointers.
                self._origins[result].add(ANYWHERE)

    def _end(self, region: _Region) -> None:
        for value, target in region.flows():
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


class TritonKernels:
    """Triton's kernels that are loaded now, found by their ``CUfunction``."""

    def __init__(self) -> None:
        self._kernels = dict(_loaded())

    def __contains__(self, function: int) -> bool:
        return function in self._kernels

    def roles(self, function: int, parameters: int) -> tuple[Role, ...] | str:
        """Return the role of each parameter of a kernel that has so many, or why its parameters do not tell all."""
        text = _ttir(self._kernels[function])
        found = kernel_arguments(text) if text is not None else None
        if found is None:
            return "Triton's text of it is not there" if text is None else "Triton's text of it is not understood"
        # Behind its arguments, Triton hands over scratch memory of its own, which no other launch uses at the same time.
        own = parameters - len(found.types)
        if not 0 <= own <= _SCRATCH:
            return f"Triton's text of it has {len(found.types)} arguments, and the kernel {parameters}"
        if not found.complete:
            return "it follows addresses that lie in memory"
        return (*_roles(found), *[Role.UNKNOWN] * own)


_SCRATCH = 2
"""Parameters that Triton adds: scratch memory for tensor maps, and for its profiler."""


def _roles(found: KernelArguments) -> Iterable[Role]:
    for number, kind in enumerate(found.types):
        if "ptr" not in kind and "desc" not in kind:
            yield Role.VALUE
        else:
            yield Role.WRITTEN if number in found.written else Role.READ


def _loaded() -> Iterable[tuple[int, Any]]:
    """Return each loaded kernel with its function: of Triton's launcher, and of torch.compile's own."""
    kinds = {
        getattr(sys.modules.get(module), name, None)
        for module, name in (
            ("triton.compiler.compiler", "CompiledKernel"),
            ("torch._inductor.runtime.static_cuda_launcher", "StaticallyLaunchedCudaKernel"),
            ("torch._inductor.runtime.static_triton_launcher", "StaticallyLaunchedCudaKernel"),
        )
    } - {None}
    if not kinds:
        return
    for one in known_objects():
        if type(one) in kinds and isinstance(function := getattr(one, "function", None), int):
            yield function, one


def _ttir(kernel: Any) -> str | None:
    """Return the TTIR text of a kernel: its own, or from Triton's cache, where torch.compile's launcher left it."""
    texts = getattr(kernel, "asm", None)
    if texts is not None:
        return str(texts["ttir"]) if "ttir" in texts else None
    folder = base64.b32encode(bytes.fromhex(kernel.hash)).decode().rstrip("=")
    for cache in _caches():
        path = cache / folder / f"{kernel.name}.ttir"
        if path.is_file():
            return path.read_text()
    return None


def _caches() -> Iterable[Path]:
    """Return the folders where Triton may have left its texts: its own, and those of torch.compile."""
    triton, inductor = sys.modules.get("triton"), sys.modules.get("torch._inductor.runtime.cache_dir_utils")
    if triton is not None:
        yield Path(triton.knobs.cache.dir)
    if inductor is not None:
        yield Path(inductor.triton_cache_dir(libraries().runtime.getDevice()))
