"""Pieces of CUDA source that every generated kernel begins with: storage types and their arithmetic types."""

from __future__ import annotations

from collections.abc import Iterable

from streamscope.kernels.cuda import pieces

HALF_CONVERSIONS, VECTORS = pieces("types").values()

STORAGE = {
    "float16": "half_t",
    "float32": "float",
    "float64": "double",
    "int8": "signed char",
    "int16": "short",
    "int32": "int",
    "int64": "long long",
    "uint8": "unsigned char",
    "bool": "bool",
}
"""C++ type of an element in memory, by dtype."""

COMPUTE = STORAGE | {"float16": "float"}
"""C++ type of an element in arithmetic, by dtype."""


def conversions_source(dtypes: Iterable[str]) -> str:
    """Return what `loaded` and `stored` need for some dtypes: nothing, unless half is among them."""
    return HALF_CONVERSIONS + "\n" if "float16" in dtypes else ""


def loaded(dtype: str, element: str) -> str:
    """Return the C++ expression for the value of an element in memory."""
    return f"load({element})" if dtype == "float16" else element


def stored(dtype: str, element: str, value: str) -> str:
    """Return the C++ statement that puts a value into memory."""
    return f"store({element}, {value});" if dtype == "float16" else f"{element} = {value};"
