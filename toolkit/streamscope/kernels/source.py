"""Sources of kernels, as they are handed to the compiler: names, the types that they begin with (``cuda/types.cuh``), and stamped twins."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Sequence
from ctypes import c_int, c_longlong
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

from streamscope.kernels.cuda import PLACE_OF_NAME, pieces
from streamscope.program.launch import CudaBench, CudaCall

HALF_CONVERSIONS, VECTORS = pieces("types").values()
WRAPPING = pieces("wrapping")["wrapping"]
"""Arithmetic of whole numbers; stands once before all kernels that name it."""

STORAGE = {
    "float16": "half_t",
    "float32": "float",
    "float64": "double",
    "int8": "signed char",
    "int16": "short",
    "int32": "int",
    "int64": "long long",
    "uint8": "unsigned char",
    "uint64": "unsigned long long",
    "bool": "bool",
}
"""C++ type of an element in memory, by dtype."""

COMPUTE = STORAGE | {"float16": "float"}
"""C++ type of an element in arithmetic, by dtype."""
INFINITY = dict.fromkeys(("float16", "float32"), "__int_as_float(0x7f800000)") | {"float64": "__longlong_as_double(0x7ff0000000000000LL)"}
"""C++ expression of infinity in arithmetic, by dtype."""


@dataclass(frozen=True)
class KernelSource:
    """CUDA C++ source of one kernel."""

    name: str
    """Name of the ``extern "C"`` function."""
    code: str
    """The whole source; it needs no header files."""


@dataclass(frozen=True)
class PlannedKernel:
    """A kernel that is launched over a known grid; its source is made when it is first asked for, which tracing does not."""

    make: Callable[[], KernelSource]
    """Returns the source."""
    blocks: int
    threads: int
    """Of the grid, and of each block."""
    numbers: tuple[int, ...]
    """Its arguments behind the pointers."""
    number: type[c_int | c_longlong] = c_longlong
    """C types of ``numbers``."""
    stages: int = 1
    """Limiting resource of its threads; see `Cost`. Reductions say that themselves."""
    sectors: float = 0.0
    """Sectors of memory that a thread touches for an element that it reads or writes; 0 where neighbours share them."""

    @cached_property
    def source(self) -> KernelSource:
        """The kernel's source."""
        return self.make()

    def bind(self, bench: CudaBench, arguments: Sequence[Any]) -> CudaCall:
        """Prepare the launch with the arguments that come before the numbers."""
        return bench.kernel(self.source, self.blocks, self.threads, [*arguments, *map(self.number, self.numbers)])


def named_source(readable: str, code: str) -> KernelSource:
    """Return a kernel called ``readable`` and 8 hexadecimal digits of the SHA-256 of its whole source.

    So two kernels of one name are the same kernel, also where many are compiled together.
    """
    if "wrapping::" in code:
        code = f"{WRAPPING}\n{code}"
    digest = hashlib.sha256(f"{readable}\n{code}".encode()).hexdigest()[:8]
    name = f"{readable}_{digest}"
    return KernelSource(name, code.replace(PLACE_OF_NAME, name))


def conversions_source(dtypes: Iterable[str]) -> str:
    """Return the includes of `loaded` and `stored` for some dtypes: nothing, unless half is among them."""
    return HALF_CONVERSIONS + "\n" if "float16" in dtypes else ""


def vector_types(*dtypes: str) -> str:
    """Return the types that a kernel of vectors begins with, for some dtypes."""
    return f"{conversions_source(dtypes)}{VECTORS}"


def loaded(dtype: str, element: str) -> str:
    """Return the C++ expression for the value of an element in memory."""
    return f"load({element})" if dtype == "float16" else element


def stored(dtype: str, element: str, value: str) -> str:
    """Return the C++ statement that puts a value into memory."""
    return f"store({element}, {value});" if dtype == "float16" else f"{element} = {value};"


STAMPS = pieces("stamps")["stamps"]
STAMP_WORDS = 3
"""Words of 64 bits that a block writes: start and end on the device's timer in ns, and the multiprocessor."""


@lru_cache(maxsize=4096)
def stamped(source: KernelSource) -> KernelSource:
    """Return a kernel that computes the same, and stamps its blocks; the stamps' address is one more argument, the last.

    Blocks and grid have one extent, as those of all generated kernels.
    """
    name = f"{source.name}_stamped"

    def declared(match: re.Match[str]) -> str:
        parameters = [match["parameters"], "unsigned long long* stamps_of_blocks"]
        return f"{name}({', '.join(filter(None, parameters))})\n{{\n    const stamped_block stamped(stamps_of_blocks);"

    code, found = re.subn(rf"\b{source.name}\((?P<parameters>[^{{}}]*)\)\s*\{{", declared, source.code)
    if found != 1:
        raise ValueError(f"kernel {source.name!r} is declared {found} times")
    return KernelSource(name, f"{STAMPS}\n{code}")
