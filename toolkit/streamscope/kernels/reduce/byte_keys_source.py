"""Keys by which a block finds the largest or smallest of many bytes: each byte above the number of its row.

Keys are compared at once, in two instructions a byte; a value and its index apart take twice as many, and twice the memory where threads
join theirs.
"""

from __future__ import annotations

from streamscope.kernels.reduce.reducers_source import BYTES, Reducer

MOST_KEYED = 2**24 - 1
"""Rows of a block that keys can number; the number after them is that of the key of no byte."""


def is_keyed(reducer: Reducer, dtype: str, width: int) -> bool:
    """Tell whether a block finds what it looks for by keys: among bytes that come in words."""
    return reducer.located and dtype in BYTES and width % 4 == 0


def byte_keys_source(reducer: Reducer, dtype: str) -> str:
    """Return ``key_t``, ``no_key``, ``under`` (what is below the byte in a key), ``better_key``, ``keyed`` and ``found``."""
    signed, largest = dtype == "int8", reducer.wanted == "larger"
    none = ("-0x7fffffff - 1" if signed else "0u") if largest else ("0x7fffffff" if signed else "0xffffffffu")
    # Of alike bytes the first is found: the largest key, if the numbers of rows count down.
    turned = f"{MOST_KEYED:#x}u - " if largest else ""
    return f"""\
typedef {"int" if signed else "unsigned"} key_t;
__device__ inline key_t no_key() {{ return {none}; }}
__device__ inline unsigned under(unsigned number) {{ return {turned}number; }}
__device__ inline key_t better_key(key_t a, key_t b) {{ return b {">" if largest else "<"} a ? b : a; }}
// The key of byte k of a word.
__device__ inline key_t keyed(unsigned word, int k, unsigned below) {{ return __byte_perm(word, below, k << 12 | 0x654); }}
// What a key stands for, where row 0 is that of index `first`.
__device__ inline acc_t found(key_t key, index_t first)
{{
    if (key == no_key()) return identity();
    return {{key >> 24, first + index_t({turned}((unsigned)key & {MOST_KEYED:#x}u))}};
}}
"""
