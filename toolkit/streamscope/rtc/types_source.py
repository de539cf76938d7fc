"""Pieces of CUDA source that every generated kernel begins with: storage types and their arithmetic types."""

from __future__ import annotations

HALF_CONVERSIONS = """\
struct half_t { unsigned short bits; };
__device__ inline float load(half_t h) { float f; asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h.bits)); return f; }
__device__ inline void store(half_t& h, float f) { asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h.bits) : "f"(f)); }
"""
"""Half is stored in 16 bits and computed in float; inline PTX, so that NVRTC needs no header files."""

PLAIN_CONVERSIONS = """\
__device__ inline storage_t load(storage_t value) { return value; }
__device__ inline void store(storage_t& target, storage_t value) { target = value; }
"""

_TYPES = {"float16": ("half_t", "float"), "float32": ("float", "float"), "float64": ("double", "double")}


def types_source(dtype: str) -> str:
    """Return typedefs ``storage_t`` and ``compute_t`` for a dtype, with ``load`` and ``store`` between them."""
    storage, compute = _TYPES[dtype]
    typedefs = f"typedef {storage} storage_t;\ntypedef {compute} compute_t;\n"
    return HALF_CONVERSIONS + typedefs if dtype == "float16" else typedefs + PLAIN_CONVERSIONS
