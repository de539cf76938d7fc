"""Reducers: how the elements of a reduction are joined, as pieces of CUDA source.

A reducer maps each element to an accumulator, joins accumulators in any order, and finishes the last one into the result.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from streamscope.kernels.cuda import fill, pieces
from streamscope.kernels.expression.wrapping import joined
from streamscope.kernels.source import COMPUTE, INFINITY

_CUDA = pieces("reduce")

FLOATS = ("float16", "float32", "float64")
BYTES = ("int8", "uint8", "bool")
UNSIGNED = ("uint8", "uint64")
_NARROW = (*BYTES, "int16")
"""Whole numbers of less than 32 bits."""
FACTORS = 4
"""Bytes whose product is within 32 bits."""


@dataclass(frozen=True)
class Reducer:
    """One way to join elements."""

    name: str
    identity: str
    mapped: str
    joined: str
    finished: str = "a"
    """CUDA expressions: the accumulator of no elements; of the element ``x`` at ``index``; of the accumulators ``a`` and ``b``; and the
    result of the accumulator ``a`` of ``count`` elements."""
    absorbed: str = "joined(a, mapped(x, index))"
    """``joined(a, mapped(x, index))`` where ``index`` is beyond all that ``a`` has seen, which may be cheaper."""
    wide: bool = False
    """Whole numbers are joined in 64 bits, without a sign if they have none, as NumPy's sums and products are; else in their own type."""
    real: bool = False
    """Whole numbers are joined in double (means and norms)."""
    double: bool = False
    """All numbers are joined in double, halves and floats too, and the result is double."""
    adds: bool = False
    multiplies: bool = False
    """The result is the sum, or the product, of the elements themselves (but for NaN, which no whole number is); of bytes, some at a
    time."""
    wanted: str = ""
    """If the accumulator is a value and its index (argmax, argmin): "larger" or "smaller", the value that is looked for."""

    @property
    def located(self) -> bool:
        """Whether the accumulator is a value and its index."""
        return bool(self.wanted)

    def value_type(self, dtype: str) -> str:
        """Return the C++ type in which values of a dtype are joined: half in float, whole numbers of less than 32 bits in 32."""
        if dtype in FLOATS and not self.double:
            return COMPUTE[dtype]
        if self.real or self.double:
            return "double"
        if self.wide:
            return "unsigned long long" if dtype in UNSIGNED else "long long"
        return "int" if dtype in _NARROW else COMPUTE[dtype]

    def adds_bytes(self, dtype: str) -> bool:
        """Tell whether bytes are added, of which a thread has a sum of up to 2^24 in 32 bits."""
        return self.adds and dtype in BYTES

    def own_type(self, dtype: str) -> str:
        """Return the C++ type in which a thread joins its own elements."""
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


_LIMITS = {
    **{dtype: (f"-{infinity}", infinity) for dtype, infinity in INFINITY.items()},
    "int8": ("-128", "127"),
    "uint8": ("0", "255"),
    "int16": ("-32768", "32767"),
    "int32": ("-2147483647 - 1", "2147483647"),
    "int64": ("-9223372036854775807LL - 1", "9223372036854775807LL"),
    "uint64": ("0", "18446744073709551615ULL"),
    "bool": ("0", "1"),
}
"""The least and the largest value by dtype, in C++."""


def reducer_source(reducer: Reducer, dtype: str, *, far: bool = False) -> str:
    """Return the types and functions by which elements are joined.

    Types: ``value_t``, ``index_t`` (64 bits with ``far``, which costs a located reducer half its speed), ``acc_t``, ``own_t`` (in which a
    thread joins its own) and, of bytes that are multiplied, ``product_t``. Functions: ``identity``, ``mapped``, ``joined``, ``absorbed``,
    ``finished``, ``shuffled`` and, of bytes, ``byte_of``; of a located reducer, which of two is found (``better``, ``alike``), and
    ``absorbed_number``. Functions of the reducer's expressions stand before.
    """
    value, own = reducer.value_type(dtype), reducer.own_type(dtype)
    code = [fill(_CUDA["types"], value=value, index="long long" if far else "int")]
    called = f"{reducer.identity} {reducer.joined} {reducer.wanted}"
    for name, limit in zip(("lowest", "highest"), _LIMITS[dtype], strict=True):
        if name in called:
            code.append(fill(_CUDA["limit"], name=name, limit=limit))
    for name, comparison, instruction in (("larger", "a < b", "max"), ("smaller", "b < a", "min")):
        if name in called:
            extreme = _CUDA["extreme_float" if value == "float" else "extreme"]
            code.append(fill(extreme, name=name, comparison=comparison, instruction=instruction))
    if reducer.located:
        beyond, not_beyond = (">", "<=") if reducer.wanted == "larger" else ("<", ">=")
        code.append(fill(_CUDA["located"], wanted=reducer.wanted, beyond=beyond, not_beyond=not_beyond))
    else:
        code.append(_CUDA["plain"])
    if dtype == "int8":
        code.append(fill(_CUDA["byte_of"], type="int", byte="signed char", selector="k * 0x1111 | 0x8880"))
    elif dtype in BYTES:
        code.append(fill(_CUDA["byte_of"], type="unsigned", byte="unsigned char", selector="k | 0x4440"))
    if reducer.product_type(dtype):
        code.append(fill(_CUDA["product"], type=reducer.product_type(dtype)))
    joins = fill(
        _CUDA["reducer"],
        own=own,
        element=COMPUTE[dtype],
        result="long long" if reducer.located else "value_t",
        identity=reducer.identity,
        mapped=reducer.mapped,
        joined=joined(value, reducer.joined),
        absorbed=reducer.absorbed if own == "acc_t" else "a + x",
        finished=reducer.finished,
    )
    return "".join([*code, joins])


MOST_KEYED = 2**24 - 1
"""Rows of a block that keys can number; the number after them is that of the key of no byte."""


def is_keyed(reducer: Reducer, dtype: str, width: int) -> bool:
    """Tell whether a block of columns searches by keys: among bytes that come in words."""
    return reducer.located and dtype in BYTES and width % 4 == 0


def accumulator_bytes(reducer: Reducer, dtype: str, *, far: bool = False) -> int:
    """Return the size of an accumulator in memory."""
    value = {"float": 4, "int": 4, "double": 8, "long long": 8, "unsigned long long": 8}[reducer.value_type(dtype)]
    if not reducer.located:
        return value
    return 16 if far else 2 * value
