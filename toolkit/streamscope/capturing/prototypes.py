"""Accesses of a kernel's parameters, from its prototype: as C++ text, or as a demangled name.

``const T*`` is read, ``T*`` is read and written. A structure, a pointer to pointers or a type that nobody knows may lead anywhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum
from functools import lru_cache


class Role(Enum):
    """Kinds of parameters."""

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
_KEYWORDS = _NUMBERS | {
    "const",
    "volatile",
    "static",
    "struct",
    "__device__",
    "__global__",
    "__restrict__",
    "complex",
    "CArray",
    "CIndexer",
}
"""Words to which no source may give another meaning."""
_DECLARED = re.compile(r"\b(?P<where>static|__device__|__constant__)\b(?P<type>[^;{}()=]*)(?P<end>[;{}(=])")
_DROPPED = re.compile(r"__restrict__|__restrict|\brestrict\b|\bvolatile\b|__grid_constant__|\btypename\b|\bregister\b|alignas\([^)]*\)")
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_QUALIFIED = r"(?:\s|[*&]|\b(?:const|volatile|__restrict__|__restrict)\b)*"
_MAKES_POINTERS = re.compile(
    r"\b(?:const_cast|reinterpret_cast|\w*bit_cast|union|(?:__)?packed(?:__)?|asm|__asm\w*|\w*mem(?:cpy|move)\w*|new|decltype(?!\(\w+\)::index_t)|typeof|__typeof\w*|\w*pointer\w*|device_ptr)\b"
    rf"|[*&]{_QUALIFIED}[>,)]|\btypedef\b[^;]*[*&]|\busing\b[^;=]*=[^;]*[*&]|^\s*#\s*pragma\s+pack|^\s*#\s*define\b[^\n]*[*&]{_QUALIFIED}$|##",
    re.MULTILINE,
)
"""Code that may make pointers of others, or of numbers in memory: casts to pointers and references, other spellings, and structures whose
pointers lie where nobody looks for them."""
_CUPYS_CASTS = re.compile(
    r"_type_reduce \*_?sdata = reinterpret_cast<_type_reduce\*>\(_sdata_raw\);"
    r"|using i_idx_t = decltype\(i\);|= static_cast<const type_mid_in\*>\(_raw_in0\);|= static_cast<type_mid_out\*>\(_raw_out0\);"
)
"""Patterns of CuPy's own kernels: the type of an index, casts of shared memory, and of parameters that they declare as ``void*``."""
_OF_NDIMAGE = re.compile(r"__global__\s+void\s+cupyx_scipy_ndimage_\w+\(")
_NDIMAGES_CASTS = re.compile(
    r"cast\(A a\) \{ return (?:\(B\)a|\(a >= 0\) \? \(B\)a : -\(B\)\(-a\)); \}"
    r"|const unsigned char\* data = \(const unsigned char\*\)&x\[0\];|\(\*\(X\*\)&data\[[\w +]*\]\)"
)
"""Patterns of the filters of ``cupyx.scipy.ndimage``: a cast of numbers, and reads of an image by bytes."""
_CONDITIONAL = re.compile(r"^\s*#\s*(?P<word>if|ifdef|ifndef|endif)\b")
_HIDDEN = re.compile(
    r"\b(?:texture|surface)\s*<|\bcuda(?:Texture|Surface)Object_t\b|\b(?:tex|surf)(?:[123]D|Cubemap)|<<<|__managed__|\b__nv_ptr|\bcudaLaunch"
)
_KNOWN_FOLDERS = re.compile(r"(?:cupy|cuda/std|cub|thrust|cooperative_groups)/(?!.*\.\.)[\w/.]+")
_KNOWN_INCLUDES = {
    *("cooperative_groups.h", "cuda_fp16.h", "cuda_bf16.h", "cuda_pipeline.h", "cuda_pipeline_primitives.h", "cuda_awbarrier.h"),
    *("cuda_awbarrier_primitives.h", "cuda_runtime.h", "cuda_runtime_api.h", "vector_types.h", "curand_kernel.h", "cuComplex.h", "mma.h"),
    *("math.h", "cmath", "stdint.h", "cstdint", "stdio.h", "cstdio", "limits", "limits.h", "climits", "type_traits", "utility", "tuple"),
    *("complex", "complex.h", "float.h", "cfloat", "stddef.h", "cstddef"),
}
"""The headers whose variables are constants."""
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
        return _makes_pointers(text) or _roles_of(symbol)
    certain = _unconditional(text)
    found = _prototypes(text, symbol)
    if len(found) != 1:
        return f"the source has {len(found)} prototypes of it"
    if _prototypes(certain, symbol) != found:
        return "its prototype depends on the preprocessor"
    (parameters,) = found
    made = _makes_pointers(text.replace(parameters, " ") if parameters.strip() else text)
    if made:
        return made
    # CuPy's own reductions name their arrays so, and give them types inside.
    declared = _parted(re.sub(r"\bvoid\s*\* (_raw_(?:in|out)\d+)", r"char* \1", parameters))
    return tuple(_role(_renamed(_without_name(one), text, certain)) for one in declared)


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
    """Return why a source may use memory in a way that its parameters do not tell; empty if it does not."""
    defined = re.findall(r"^\s*#\s*define\s+(\w+)", text, re.MULTILINE)
    if _KEYWORDS.intersection(defined):
        return "its source gives other meanings to words of C++"
    if _HIDDEN.search(text):
        return "its source uses textures, surfaces, managed variables or launches kernels"
    for included in re.findall(r"^\s*#\s*(?:include\w*|import)\b\s*(.*)", text, re.MULTILINE):
        name = included.strip()[1:-1]
        if name not in _KNOWN_INCLUDES and not _KNOWN_FOLDERS.fullmatch(name):
            return f"its source includes {included.strip()}"
    if any(_is_variable(one, text) for one in _DECLARED.finditer(text)):
        return "its source has variables of its own in device memory"
    return ""


def _makes_pointers(text: str) -> str:
    """Return that a source, but for a kernel's parameters, may make pointers; empty if it does not."""
    left = _CUPYS_CASTS.sub(" ", text)
    left = _NDIMAGES_CASTS.sub(" ", left) if _OF_NDIMAGE.search(left) else left
    if _MAKES_POINTERS.search(left) or _casts_to_parameters(left):
        return "its source makes pointers, perhaps of others or of numbers in memory"
    return ""


def _is_variable(declared: re.Match[str], text: str) -> bool:
    """Tell a variable in device memory that is not a constant number."""
    if declared["end"] in "(}":
        return declared["end"] == "(" and re.match(r"\s*[-+.\d]", text[declared.end() :]) is not None
    kind = declared["type"].partition("[")[0]
    words = [one for one in re.findall(r"[A-Za-z_]\w*", kind) if one not in ("static", "__device__", "inline", "constexpr", "const")]
    fixed = declared["where"] != "__constant__" and re.search(r"\bconst(?:expr)?\b", kind)
    return not (fixed and "*" not in kind and "&" not in kind and _is_number(" ".join(words[:-1])))


def _casts_to_parameters(text: str) -> bool:
    """Tell whether something is cast to a parameter of a template, which may be a pointer; ``static_cast`` makes none of numbers."""
    names = set(re.findall(r"\b(?:typename|class)\s+(\w+)\s*(?=[,>=])", text))
    number = r"\s*-?[.\d]+[fFuUlL]*\s*[)}]"
    return any(re.search(rf"\(\s*{name}\s*\)\s*[A-Za-z_(*&]|(?<![\w<]){name}\s*[({{](?!{number})", text) for name in names)


def _unconditional(text: str) -> str:
    """Return the lines that no ``#if`` is around."""
    depth, kept = 0, []
    for line in text.split("\n"):
        found = _CONDITIONAL.match(line)
        if found is not None:
            depth += -1 if found["word"] == "endif" else 1
        elif depth <= 0:
            kept.append(line)
    return "\n".join(kept)


def _prototypes(text: str, symbol: str) -> set[str]:
    """Return the parameters of each declaration of a kernel, as text."""
    opened = (one.end() for one in re.finditer(rf"__global__[^;{{}}]*?\b{re.escape(symbol)}\s*\(", text))
    return {text[at : closing(text, at)] for at in opened}


def closing(text: str, at: int) -> int:
    """Return where the bracket closes that was opened just before a place; the end of a text in which it does not."""
    depth = 1
    for place in range(at, len(text)):
        depth += {"(": 1, ")": -1}.get(text[place], 0)
        if depth == 0:
            return place
    return len(text)


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


def _renamed(kind: str, text: str, certain: str) -> str:
    """Return a type with names that the source gives to numbers written out; only definitions outside of any ``#if`` are certain."""

    def meaning(match: re.Match[str]) -> str:
        name = match[0]
        if name in _NUMBERS or name in _WORDS_OF_NUMBERS:
            return name
        defined = _meanings(name, text)
        (only,) = defined if len(defined) == 1 and defined == _meanings(name, certain) else ("",)
        return only if only and _is_number(only) else name

    return re.sub(r"\b[A-Za-z_]\w*\b", meaning, kind)


def _meanings(name: str, text: str) -> set[str]:
    """Return the named numbers of a source."""
    return {
        *re.findall(rf"\btypedef\s+([\w\s]+?)\s+{name}\s*;", text),
        *re.findall(rf"\busing\s+{name}\s*=\s*([\w\s]+?)\s*;", text),
        *re.findall(rf"^\s*#\s*define\s+{name}\s+([\w ]+?)\s*$", text, re.MULTILINE),
    }


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
