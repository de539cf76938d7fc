"""Element-wise operators of two operands, which broadcast; either may be a Python number. Comparisons and logic give bool."""

from __future__ import annotations

from functools import partial

import numpy as np

from streamscope.arrays import Array
from streamscope.ops.elementwise_operator import defined

_binary = partial(defined, ("a", "b"))


def _power(a: Array, b: Array) -> Array:
    """Return the power; where NumPy raises, a negative whole exponent, the power's whole part."""
    if a.dtype.kind == "f":
        return np.asarray(np.power(a, b))
    magnitude = np.power(a, np.maximum(b, 0))
    parity = np.where(b % 2 == 0, a.dtype.type(1), a)
    return np.where(b < 0, np.where(np.abs(a) == 1, parity, a.dtype.type(0)), magnitude)


add = _binary("add", "Return ``a + b``.", "a + b", np.add, ("dy", "dy"))
subtract = _binary("subtract", "Return ``a - b``.", "a - b", np.subtract, ("dy", "-dy"))
multiply = _binary("multiply", "Return ``a * b``, element by element.", "a * b", np.multiply, ("dy * b", "dy * a"))
divide = _binary(
    "divide", "Return ``a / b``; of whole numbers a floating-point number.", "a / b", np.true_divide, ("dy / b", "-dy * (a / b / b)")
)
floor_divide = _binary(
    "floor_divide",
    "Return ``a // b``, rounded down; 0 for a whole number by 0.",
    "floor_quotient(a, b)",
    np.floor_divide,
    whole="whole_quotient(a, b)",
    flops=4,
)
mod = _binary(
    "mod",
    "Return the rest of `floor_divide`, with the sign of b, as Python's ``%``; 0 for a whole number by 0.",
    "modulo(a, b)",
    np.remainder,
    ("dy", "-dy * floor(a / b)"),
    whole="whole_modulo(a, b)",
    flops=4,
)
fmod = _binary(
    "fmod",
    "Return the rest of a division rounded towards zero, with the sign of a, as C's; 0 for a whole number by 0.",
    "fmod(a, b)",
    np.fmod,
    ("dy", "-dy * trunc(a / b)"),
    whole="a % b",
    flops=4,
)
power = _binary(
    "power",
    "Return a to the power of b; of whole numbers with ``b < 0`` the power's whole part, where NumPy raises.",
    "pow(a, b)",
    np.power,
    ("b == 0 ? T(0) : dy * b * pow(a, b - 1)", "a == 0 && b >= 0 ? T(0) : dy * y * log(a)"),
    reference=_power,
    whole="whole_power(a, b)",
    flops=10,
)
maximum = _binary(
    "maximum",
    "Return the greater of a and b, and NaN where either is.",
    "maximum(a, b)",
    np.maximum,
    ("a >= b || a != a ? dy : T(0)", "a >= b || a != a ? T(0) : dy"),
)
minimum = _binary(
    "minimum",
    "Return the lesser of a and b, and NaN where either is.",
    "minimum(a, b)",
    np.minimum,
    ("a <= b || a != a ? dy : T(0)", "a <= b || a != a ? T(0) : dy"),
)
fmax = _binary(
    "fmax",
    "Return the greater of a and b; a NaN is ignored where the other is a number.",
    "fmax(a, b)",
    np.fmax,
    ("a >= b || b != b ? dy : T(0)", "a >= b || b != b ? T(0) : dy"),
    whole="a > b ? a : b",
)
fmin = _binary(
    "fmin",
    "Return the lesser of a and b; a NaN is ignored where the other is a number.",
    "fmin(a, b)",
    np.fmin,
    ("a <= b || b != b ? dy : T(0)", "a <= b || b != b ? T(0) : dy"),
    whole="a < b ? a : b",
)
hypot = _binary(
    "hypot",
    "Return ``sqrt(a**2 + b**2)`` without overflow on the way.",
    "hypot(a, b)",
    np.hypot,
    ("y == 0 ? T(0) : dy * a / y", "y == 0 ? T(0) : dy * b / y"),
    flops=4,
)
arctan2 = _binary(
    "arctan2",
    "Return the angle of the point (b, a), in radians.",
    "atan2(a, b)",
    np.arctan2,
    ("dy * (b / hypot(a, b) / hypot(a, b))", "-dy * (a / hypot(a, b) / hypot(a, b))"),
    flops=10,
)
copysign = _binary(
    "copysign", "Return a with the sign of b.", "copysign(a, b)", np.copysign, ("dy * copysign(T(1), a) * copysign(T(1), b)", "0")
)
logaddexp = _binary(
    "logaddexp",
    "Return ``log(exp(a) + exp(b))`` without overflow on the way.",
    "log_add(a, b)",
    np.logaddexp,
    ("dy * sigmoid(a - b)", "dy * sigmoid(b - a)"),
    flops=6,
)
ldexp = _binary(
    "ldexp",
    "Return ``a * 2**b`` for whole numbers b.",
    "scale_by_power(a, b)",
    np.ldexp,
    ("scale_by_power(dy, b)", None),
)

gcd = _binary("gcd", "Return the greatest common divisor of whole numbers.", "gcd(a, b)", np.gcd, flops=20)
lcm = _binary("lcm", "Return the least common multiple of whole numbers.", "lcm(a, b)", np.lcm, flops=20)
bitwise_and = _binary("bitwise_and", "Return the bits that are set in a and in b.", "a & b", np.bitwise_and)
bitwise_or = _binary("bitwise_or", "Return the bits that are set in a or in b.", "a | b", np.bitwise_or)
bitwise_xor = _binary("bitwise_xor", "Return the bits that are set in one of a and b.", "a ^ b", np.bitwise_xor)
left_shift = _binary("left_shift", "Return ``a << b``; 0 where b is negative or not below the width.", "a << b", np.left_shift)
right_shift = _binary(
    "right_shift",
    "Return ``a >> b``; where b is negative or not below the width, 0, or -1 for negative a.",
    "a >> b",
    np.right_shift,
)

equal = _binary("equal", "Tell where ``a == b``.", "a == b", np.equal, unlike="compared(a, b) == 0")
not_equal = _binary("not_equal", "Tell where ``a != b``.", "a != b", np.not_equal, unlike="compared(a, b) != 0")
greater = _binary("greater", "Tell where ``a > b``.", "a > b", np.greater, unlike="compared(a, b) > 0")
greater_equal = _binary("greater_equal", "Tell where ``a >= b``.", "a >= b", np.greater_equal, unlike="compared(a, b) >= 0")
less = _binary("less", "Tell where ``a < b``.", "a < b", np.less, unlike="compared(a, b) < 0")
less_equal = _binary("less_equal", "Tell where ``a <= b``.", "a <= b", np.less_equal, unlike="compared(a, b) <= 0")
logical_and = _binary("logical_and", "Tell where neither a nor b is zero.", "a && b", np.logical_and)
logical_or = _binary("logical_or", "Tell where a or b is not zero.", "a || b", np.logical_or)
logical_xor = _binary("logical_xor", "Tell where one of a and b is not zero.", "!a != !b", np.logical_xor)
