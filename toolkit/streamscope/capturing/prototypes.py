"""What a kernel's parameters say about the memory behind them, from its prototype: as C++ text, or as a demangled name.

``const T*`` is read, ``T*`` is read and written. A structure, a pointer to pointers or a type that nobody knows may lead anywhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum
from functools import lru_cache


class Role(Enum):
    """What a parameter is."""

    VALUE = "a number"
    INDEXER = "says how far CuPy's arrays reach; a word of it is left as it was"
    READ = "leads to memory that is read"
    WRITTEN = "leads to memory that may be written"
    HOLDER = "holds all addresses that it leads to"
    UNKNOWN = "may hold anything"


_VECTORS = ("char", "uchar", "short", "ushort", "int", "uint", "long", "ulong", "longlong", "ulonglong", "float", "double")
_NUMBERS = {
    *("bool", "char", "short", "int", "long", "float", "double", "half", "size_t", "ptrdiff_t", "ssize_t", "unsigned", "signed"),
    *(f"{sign}int{bits}_t" for sign in ("", "u") for bits in (8, 16, 32, 64)),
    *("uchar", "ushort", "uint", "ulong", "__half", "__half2", "half2", "Half", "float16"),
    *("__nv_bfloat16", "__nv_bfloat162", "nv_bfloat16", "bfloat16", "BFloat16"),
    *(f"{base}{count}" for base in _VECTORS for count in (1, 2, 3, 4)),
}
_WORDS_OF_NUMBERS = frozenset({"unsigned", "signed", "long", "short", "int", "char", "double"})
_WIDE = re.compile(r"\b(?:long|u?int64_t|size_t|ptrdiff_t|u?intptr_t|u?longlong\d?|ulong\d?)\b")
"""Numbers in which an address fits."""
_DROPPED = re.compile(r"__restrict__|__restrict|\brestrict\b|\bvolatile\b|__grid_constant__|\btypename\b|\bregister\b|alignas\([^)]*\)")
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_POINTER_CAST = re.compile(r"(?:reinterpret_cast|static_cast)\s*<[^<>]*\*\s*>|\([\w\s:]+\*+\s*\)\s*[\w(*]")
_HIDDEN = re.compile(r"\b(?:texture|surface)\s*<|\bcuda(?:Texture|Surface)Object_t\b|<<<|__managed__|\b__nv_ptr|\bcudaLaunch")
_KNOWN_INCLUDES = (
    *("cupy/", "cuda/std/", "cub/", "thrust/", "cooperative_groups", "cuda_fp16", "cuda_bf16", "cuda_pipeline", "cuda_awbarrier"),
    *("cuda_runtime", "vector_types", "curand_kernel", "cuComplex", "mma.h", "math", "cmath", "stdint", "cstdint", "stdio", "cstdio"),
    *("limits", "climits", "type_traits", "utility", "tuple", "complex", "float.h", "cfloat"),
)
"""How the headers begin whose variables are constants."""
_OF_LIBRARIES = ("cub::", "thrust::", "at::native::", "at_cuda_detail::", "cuda::std::", "cupy::")
"""Namespaces whose kernels use no variables of their module, as far as these libraries' sources say."""

_ITERATORS = ("cub::", "thrust::")
"""How the names of iterators and states begin that hold all addresses which they lead to."""


@lru_cache(maxsize=4096)
def roles_in_source(source: str, symbol: str) -> tuple[Role, ...] | str:
    """Return the role of each parameter of a kernel in C++ text, or why its parameters do not tell all.

    The symbol is a plain name, or a demangled one, which has the types itself.

    Examples
    --------
    >>> from streamscope.capturing.prototypes import roles_in_source
    >>> source = 'extern "C" __global__ void scale(const float* x, float* y, int n) { y[threadIdx.x] = 2 * x[threadIdx.x]; }'
    >>> [role.name for role in roles_in_source(source, "scale")]
    ['READ', 'WRITTEN', 'VALUE']
    """
    text = _COMMENT.sub(" ", source.replace("\\\n", " "))
    hidden = _hidden(text)
    if hidden:
        return hidden
    if symbol.endswith(")"):
        return _roles_of(symbol)
    found = {_between(text, one.end()) for one in re.finditer(rf"__global__[^;{{}}]*?\b{re.escape(symbol)}\s*\(", text)}
    if len(found) != 1:
        return f"the source has {len(found)} prototypes of it"
    (parameters,) = found
    # CuPy's own reductions name their arrays so, and give them types inside.
    declared = list(_parted(re.sub(r"\bvoid\s*\* (_raw_(?:in|out)\d+)", r"char* \1", parameters)))
    roles = tuple(_role(_renamed(_without_name(one), text)) for one in declared)
    if _POINTER_CAST.search(text) and any("*" in one and _WIDE.search(one) for one in declared):
        return "its source makes pointers, perhaps of numbers in memory"
    return roles


@lru_cache(maxsize=4096)
def roles_in_name(symbol: str) -> tuple[Role, ...] | str:
    """Return the role of each parameter in a demangled name, or why the parameters do not tell all.

    Examples
    --------
    >>> from streamscope.capturing.prototypes import roles_in_name
    >>> [role.name for role in roles_in_name("void cub::copy<float>(float const*, float*, int, Policy)")]
    ['READ', 'WRITTEN', 'VALUE', 'UNKNOWN']
    """
    if not symbol.endswith(")"):
        return "its name has no parameters"
    if not symbol.removeprefix("void ").startswith(_OF_LIBRARIES):
        return "its source is not known, so variables of its module are not either"
    return _roles_of(symbol)


def _roles_of(symbol: str) -> tuple[Role, ...]:
    return tuple(map(_role, _parted(_last_bracket(symbol)[1:-1])))


def _last_bracket(symbol: str) -> str:
    depth = 0
    for place in range(len(symbol) - 1, -1, -1):
        depth += {")": 1, "(": -1}.get(symbol[place], 0)
        if depth == 0:
            return symbol[place:]
    return symbol


def _hidden(text: str) -> str:
    """Return why a source may use memory that no parameter leads to; empty if it does not."""
    if re.search(r"^\s*#\s*define\s+(?:const|float|int|double|__global__)\b", text, re.MULTILINE):
        return "its source gives other meanings to words of C++"
    if _HIDDEN.search(text):
        return "its source uses textures, surfaces, managed variables or launches kernels"
    for include in re.findall(r"^\s*#\s*include\s*([<\"][^>\"]+[>\"])", text, re.MULTILINE):
        if not include[1:].startswith(_KNOWN_INCLUDES):
            return f"its source includes {include}"
    for one in re.finditer(r"\b(?P<where>static|__device__|__constant__)\b(?P<type>[^;{}()=]*)(?P<end>[;{}(=])", text):
        fixed = one["where"] != "__constant__" and re.search(r"\bconst(?:expr)?\b|__constant__", one["type"])
        variable = one["end"] in ";=" or (one["end"] == "{" and not re.search(r"\b(?:struct|class|namespace)\b", one["type"]))
        if variable and not fixed:
            return "its source has variables of its own in device memory"
    return ""


def _between(text: str, at: int) -> str:
    """Return what lies between a bracket that was just opened and the one that closes it."""
    depth = 1
    for place in range(at, len(text)):
        depth += {"(": 1, ")": -1}.get(text[place], 0)
        if depth == 0:
            return text[at:place]
    return text[at:]


def _parted(parameters: str) -> Iterator[str]:
    """Return parameters one by one; commas inside brackets do not part them."""
    depth, start = 0, 0
    for place, character in enumerate(parameters):
        depth += character in "<([{"
        depth -= character in ">)]}"
        if character == "," and depth == 0:
            yield parameters[start:place].strip()
            start = place + 1
    last = parameters[start:].strip()
    if last and last != "void":
        yield last


def _without_name(declared: str) -> str:
    """Return the type of a declared parameter."""
    text = _DROPPED.sub(" ", declared.split("=", 1)[0]).strip()
    pointers = "*" if text.endswith("]") else ""
    text = re.sub(r"\s*\[[^\]]*\]\s*$", "", text)
    named = re.match(r"^(?P<type>.*[\s*&>])(?P<name>[A-Za-z_]\w*)$", text, re.DOTALL)
    kept = text if named is None or _is_number(text) or named["name"] in _WORDS_OF_NUMBERS else named["type"].strip()
    return kept + pointers


def _renamed(kind: str, text: str) -> str:
    """Return a type with names that the source gives to numbers written out."""

    def meaning(match: re.Match[str]) -> str:
        name = match[0]
        if name in _NUMBERS or name in _WORDS_OF_NUMBERS:
            return name
        defined = {
            *re.findall(rf"\btypedef\s+([\w\s]+?)\s+{name}\s*;", text),
            *re.findall(rf"\busing\s+{name}\s*=\s*([\w\s]+?)\s*;", text),
            *re.findall(rf"^\s*#\s*define\s+{name}\s+([\w ]+?)\s*$", text, re.MULTILINE),
        }
        (only,) = defined if len(defined) == 1 else ("",)
        return only if only and _is_number(only) else name

    return re.sub(r"\b[A-Za-z_]\w*\b", meaning, kind)


def _is_number(kind: str) -> bool:
    """Tell a number, or a few of them side by side."""
    bare = re.sub(r"\bconst\b", " ", kind).strip().removeprefix("std::").removeprefix("c10::").removeprefix("cupy::")
    complexes = re.fullmatch(r"(?:thrust::|cuda::std::|c10::|std::)?complex<\s*([\w\s:]+?)\s*>", bare)
    if complexes is not None:
        return _is_number(complexes[1])
    words = bare.split()
    return bool(words) and (
        bare in _NUMBERS or ({"unsigned", "signed", "long", "short"} & set(words) != set() and set(words) <= _WORDS_OF_NUMBERS)
    )


def _role(kind: str) -> Role:
    """Return the role of a parameter of some type."""
    kind = " ".join(_DROPPED.sub(" ", kind).split())
    array = re.fullmatch(r"(const )?CArray<\s*(.+?)\s*(?:,[^<>]*)?>( const)?", kind)
    if array is not None:
        held = _is_number(array[2])
        return Role.UNKNOWN if not held else Role.READ if array[1] or array[3] else Role.WRITTEN
    if re.fullmatch(r"(?:const )?CIndexer<[^<>]*>(?: const)?", kind):
        return Role.INDEXER
    if _is_number(kind):
        return Role.VALUE
    if kind.startswith(_ITERATORS):
        return Role.HOLDER
    pointer = re.fullmatch(r"([^*&()]+?)\s*\*\s*(?:const)?", kind)
    if pointer is None or not _is_number(pointer[1]):
        return Role.UNKNOWN
    return Role.READ if re.search(r"\bconst\b", pointer[1]) else Role.WRITTEN
