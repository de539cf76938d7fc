"""Who shares memory with whom, by NumPy's rules, and what may be written in place."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

import numpy as np

from streamscope.errors import ProgramError
from streamscope.program.user_line import user_line
from streamscope.program.variable import ArraySpec

if TYPE_CHECKING:
    from streamscope.program.symbol import Symbol


class Sharing(Enum):
    """What NumPy has in the place of a symbol."""

    ARRAY = "an array, or a view of one that may be written"
    READ_ONLY = "a view in which elements repeat (broadcast_to), which NumPy makes read-only"
    COPY = "a view of a number, which is a copy in NumPy"
    NUMBER = "a number, which never changes"
    TAKEN = "a view in NumPy, at an index that is known only when the program runs"


def check_update(target: Symbol, operator: str, result: ArraySpec) -> None:
    """Raise a `ProgramError` where NumPy would not write a result of an operator in place."""
    where = f"in-place {operator} of {target.name!r} at {user_line()}"
    if target.sharing is not Sharing.ARRAY:
        raise ProgramError(f"{where}: it is {target.sharing.value}", hint="write x = x + y, or copy it first: x = np.copy(x)")
    if result.shape != target.shape:
        raise ProgramError(
            f"{where}: the result has shape {result.shape}, and {target.name!r} keeps its shape {target.shape}", hint="write x = x + y"
        )
    if not np.can_cast(result.dtype, target.dtype, "same_kind"):
        raise ProgramError(
            f"{where}: the result is {result.dtype.name}, and NumPy does not cast that to {target.dtype.name} in place (same_kind)",
            hint=f"write x = x + y, or convert first: .astype({target.dtype.name!r})",
        )
