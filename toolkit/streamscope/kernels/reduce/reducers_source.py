"""Reducers: how the elements of a reduction are joined, as pieces of CUDA source.

A reducer maps each element to an accumulator, joins accumulators in any order, and finishes the last one into the result.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from streamscope.kernels.elementwise.wrapping_source import joined
from streamscope.kernels.types_source import COMPUTE

FLOATS = ("float16", "float32", "float64")
BYTES = ("int8", "uint8", "bool")
NARROW = (*BYTES, "int16")
"""Whole numbers of less than 32 bits."""
FACTORS = 4
"""Bytes whose product is within 32 bits."""


@dataclass(frozen=True)
class Reducer:
    """One way to join elements.

    Attributes
    ----------
    name : str
    identity, mapped, joined, finished : str
        CUDA expressions: the accumulator of no elements; of the element ``x`` at ``index``; of the accumulators ``a`` and ``b``; and the
        result of the accumulator ``a`` of ``count`` elements.
    absorbed : str
        ``joined(a, mapped(x, index))`` where ``index`` is beyond all that ``a`` has seen, which may be cheaper.
    wide : bool
        Whole numbers are joined in 64 bits, as NumPy's sums and products are; else in their own type.
    real : bool
        Whole numbers are joined in double (means and norms).
    double : bool
        All numbers are joined in double, halves and floats too, and the result is double.
    adds, multiplies : bool
        The result is the sum, or the product, of the elements themselves (but for NaN, which no whole number is); of bytes, some at a time.
    wanted : str
        If the accumulator is a value and its index (argmax, argmin): "larger" or "smaller", the value that is looked for.
    """

    name: str
    identity: str
    mapped: str
    joined: str
    finished: str = "a"
    absorbed: str = "joined(a, mapped(x, index))"
    wide: bool = False
    real: bool = False
    double: bool = False
    adds: bool = False
    multiplies: bool = False
    wanted: str = ""

    @property
    def located(self) -> bool:
        """Whether the accumulator is a value and its index."""
        return bool(self.wanted)

    def value_type(self, dtype: str) -> str:
        """Return the C++ type in which values of a dtype are joined: half in float, whole numbers of less than 32 bits in 32."""
        if dtype in FLOATS and not self.double:
            return COMPUTE[dtype]
        return "double" if self.real or self.double else "long long" if self.wide else "int" if dtype in NARROW else COMPUTE[dtype]

    def adds_bytes(self, dtype: str) -> bool:
        """Tell whether bytes are added, of which a thread has a sum of up to 2^24 in 32 bits."""
        return self.adds and dtype in BYTES

    def own_type(self, dtype: str) -> str:
        """Return the C++ type in which a thread joins what it reads itself."""
        return "acc_t" if not self.adds_bytes(dtype) else "int" if dtype == "int8" else "unsigned"

    def product_type(self, dtype: str) -> str:
        """Return the C++ type in which a thread multiplies up to `FACTORS` elements, to join them at once; empty if it joins each alone."""
        return "" if dtype not in BYTES or not self.multiplies else "int" if dtype == "int8" else "unsigned"


_SUM = Reducer("sum", "value_t(0)", "value_t(x)", "a + b", wide=True, adds=True)
_PROD = Reducer("prod", "value_t(1)", "value_t(x)", "a * b", wide=True, multiplies=True)
_MAX = Reducer("max", "lowest()", "value_t(x)", "larger(a, b)")
_MIN = Reducer("min", "highest()", "value_t(x)", "smaller(a, b)")
_FIRST = "(a.index < 0 || b.index < 0 ? b.index < 0 : better(a.value, b.value) || (!better(b.value, a.value) && a.index < b.index)) ? a : b"
_FOUND = "a.index < 0 ? 0 : a.index"
_LATER = "better(value_t(x), a.value) ? acc_t{value_t(x), index} : a"
_ABSOLUTE = "value_t(x < 0 ? -value_t(x) : value_t(x))"

REDUCERS: Mapping[str, Reducer] = {
    "sum": _SUM,
    "prod": _PROD,
    "nansum": Reducer("nansum", _SUM.identity, "x != x ? value_t(0) : value_t(x)", _SUM.joined, wide=True, adds=True),
    "nanprod": Reducer("nanprod", _PROD.identity, "x != x ? value_t(1) : value_t(x)", _PROD.joined, wide=True, multiplies=True),
    "mean": Reducer("mean", _SUM.identity, _SUM.mapped, _SUM.joined, "a / value_t(count)", real=True, adds=True),
    "max": _MAX,
    "min": _MIN,
    "any": Reducer("any", "value_t(0)", "value_t(x != 0)", "value_t(a || b)"),
    "all": Reducer("all", "value_t(1)", "value_t(x != 0)", "value_t(a && b)"),
    # The first NaN wins, then the largest value, then the lowest index, as in NumPy. A negative index is that of no element better than the
    # worst there can be; if no element is better, all are alike, and the first is it.
    "argmax": Reducer("argmax", "{lowest(), -1}", "{value_t(x), index}", _FIRST, _FOUND, _LATER, wanted="larger"),
    "argmin": Reducer("argmin", "{highest(), -1}", "{value_t(x), index}", _FIRST, _FOUND, _LATER, wanted="smaller"),
    "norm_1": Reducer("norm_1", "value_t(0)", _ABSOLUTE, "a + b", real=True),
    "norm_2": Reducer("norm_2", "value_t(0)", "value_t(x) * value_t(x)", "a + b", "sqrt(a)", real=True),
    "norm_inf": Reducer("norm_inf", "value_t(0)", _ABSOLUTE, _MAX.joined, real=True),
}
"""The reducers by name."""


def power_norm(order: float) -> Reducer:
    """Return the reducer of ``(sum |x|^order)^(1/order)``; orders 1, 2 and infinity have cheaper ones of their own."""
    exact = f"value_t({order!r})"
    return Reducer("norm_p", "value_t(0)", f"pow({_ABSOLUTE}, {exact})", "a + b", f"pow(a, value_t(1) / {exact})", real=True)


_LOCATED = """\
struct acc_t {{ value_t value; index_t index; }};
// Whether a is found before b; NaN is found before all.
__device__ inline bool better(value_t a, value_t b) {{ return !(a {not_beyond} b) && b == b; }}
// Whether none is found before the other.
__device__ inline bool alike(value_t a, value_t b) {{ return a == b || (a != a && b != b); }}
// The first of the two, quickly, but the index is not that of x if x is NaN.
__device__ inline acc_t absorbed_number(acc_t a, value_t x, index_t index)
{{
    return {{{wanted}(a.value, x), x {beyond} a.value ? index : a.index}};
}}
__device__ inline acc_t shuffled(acc_t a, int offset)
{{
    return {{__shfl_xor_sync(0xffffffffu, a.value, offset), __shfl_xor_sync(0xffffffffu, a.index, offset)}};
}}
"""

# NaN is passed on: a comparison with one is false. GPUs from compute capability 8.0 on have an instruction for that in float.
_EXTREME = """\
__device__ inline value_t {name}(value_t a, value_t b) {{ return {comparison} || b != b ? b : a; }}
"""

_EXTREME_FLOAT = """\
__device__ inline value_t {name}(value_t a, value_t b)
{{
#if __CUDA_ARCH__ >= 800
    asm("{instruction}.NaN.f32 %0, %0, %1;" : "+f"(a) : "f"(b));
    return a;
#else
    return {comparison} || b != b ? b : a;
#endif
}}
"""

_PLAIN = """\
typedef value_t acc_t;
__device__ inline acc_t shuffled(acc_t a, int offset) { return __shfl_xor_sync(0xffffffffu, a, offset); }
"""

_BYTES = """\
// Byte k of a word. Of signed ones the compiler shifts most twice, where one instruction does.
__device__ inline {type} byte_of(unsigned word, int k)
{{
#if __CUDA_ARCH__
    {type} value;
    asm("prmt.b32 %0, %1, 0, %2;" : "=r"(value) : "r"(word), "r"({selector}));
    return value;
#else
    return ({element})(word >> 8 * k);
#endif
}}
"""

_PRODUCT = """\
typedef {type} product_t;
// The product of some bytes; hidden from the compiler, which would multiply all of them in 64 bits.
__device__ inline product_t whole(product_t product)
{{
    asm("" : "+r"(product));
    return product;
}}
"""

_LIMITS = {
    "float16": ("-__int_as_float(0x7f800000)", "__int_as_float(0x7f800000)"),
    "float32": ("-__int_as_float(0x7f800000)", "__int_as_float(0x7f800000)"),
    "float64": ("-__longlong_as_double(0x7ff0000000000000LL)", "__longlong_as_double(0x7ff0000000000000LL)"),
    "int8": ("-128", "127"),
    "uint8": ("0", "255"),
    "int16": ("-32768", "32767"),
    "int32": ("-2147483647 - 1", "2147483647"),
    "int64": ("-9223372036854775807LL - 1", "9223372036854775807LL"),
    "bool": ("0", "1"),
}
"""The least and the largest value by dtype, in C++."""


def reducer_source(reducer: Reducer, dtype: str, *, far: bool = False) -> str:
    """Return the types and functions by which elements are joined.

    Types: ``value_t``, ``index_t`` (64 bits with ``far``, which costs a located reducer half its speed), ``acc_t``, ``own_t`` (what one
    thread joins by itself) and, of bytes that are multiplied, ``product_t``. Functions: ``identity``, ``mapped``, ``joined``, ``absorbed``,
    ``finished``, ``shuffled`` and, of bytes, ``byte_of``; of a located reducer, which of two is found (``better``, ``alike``), and
    ``absorbed_number``. What the reducer's expressions call stands before.
    """
    value = reducer.value_type(dtype)
    pieces = [f"typedef {value} value_t;\ntypedef {'long long' if far else 'int'} index_t;\n"]
    called = f"{reducer.identity} {reducer.joined} {reducer.wanted}"
    for name, limit in zip(("lowest", "highest"), _LIMITS[dtype], strict=True):
        if name in called:
            pieces.append(f"__device__ inline value_t {name}() {{ return value_t({limit}); }}\n")
    for name, comparison, instruction in (("larger", "a < b", "max"), ("smaller", "b < a", "min")):
        if name in called:
            extreme = _EXTREME_FLOAT if value == "float" else _EXTREME
            pieces.append(extreme.format(name=name, comparison=comparison, instruction=instruction))
    if reducer.located:
        beyond, not_beyond = (">", "<=") if reducer.wanted == "larger" else ("<", ">=")
        pieces.append(_LOCATED.format(wanted=reducer.wanted, beyond=beyond, not_beyond=not_beyond))
    else:
        pieces.append(_PLAIN)
    if dtype in BYTES:
        kind, element, selector = ("int", "signed", "k * 0x1111 | 0x8880") if dtype == "int8" else ("unsigned", "unsigned", "k | 0x4440")
        pieces.append(_BYTES.format(type=kind, element=f"{element} char", selector=selector))
    if reducer.product_type(dtype):
        pieces.append(_PRODUCT.format(type=reducer.product_type(dtype)))
    own = reducer.own_type(dtype)
    absorbed = reducer.absorbed if own == "acc_t" else "a + x"
    result = "long long" if reducer.located else "value_t"
    pieces.append(
        f"""typedef {own} own_t;
__device__ inline acc_t identity() {{ return {reducer.identity}; }}
__device__ inline acc_t mapped({COMPUTE[dtype]} x, index_t index) {{ return {reducer.mapped}; }}
__device__ inline acc_t joined(acc_t a, acc_t b) {{ return {joined(value, reducer.joined)}; }}
__device__ inline own_t absorbed(own_t a, {COMPUTE[dtype]} x, index_t index) {{ return {absorbed}; }}
__device__ inline {result} finished(acc_t a, long long count) {{ return {reducer.finished}; }}
"""
    )
    return "".join(pieces)
