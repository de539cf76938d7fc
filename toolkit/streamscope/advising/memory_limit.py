"""Memory limits: a number of bytes, or text such as ``"512 MiB"``."""

from __future__ import annotations

import re
from fractions import Fraction

from streamscope.arguments import shown, whole_number
from streamscope.errors import EngineError

UNITS = {
    "": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "TIB": 1 << 40,
}  # fmt: skip
_SIZE = re.compile(r"\s*(\d{1,20}(?:\.\d{1,20})?)\s*([A-Za-z]*)\s*")  # Longer ones are no sizes of any memory.


def memory_bytes(limit: int | str) -> int:
    """Return a memory limit in bytes.

    Parameters
    ----------
    limit : int or str
        Bytes, or a number with a unit: B, kB, MB, GB, TB (powers of 1,000) or KiB, MiB, GiB, TiB (powers of 1,024); case does not matter.

    Raises
    ------
    EngineError
        It is not such a number, or less than one byte.
    """
    hint = 'give bytes, or for example "512 MiB"'
    if isinstance(limit, str):
        match = _SIZE.fullmatch(limit)
        unit = UNITS.get(match[2].upper()) if match else None
        if match is None or unit is None:
            raise EngineError(f"memory limit {shown(limit)} is no size", hint=hint)
        size = int(Fraction(match[1]) * unit)
    else:
        try:
            size = whole_number("memory_limit", limit)
        except EngineError:
            raise EngineError(f"memory limit {shown(limit)} is no size", hint=hint) from None
    if size < 1:
        raise EngineError(f"memory limit {shown(limit)} is less than one byte", hint=hint)
    return size
