"""Examples of operators, for their documentation: operands, as lists, and printed results stand in ``examples.txt``."""

from __future__ import annotations

import pkgutil
from functools import cache

RAISES = """

    Raises
    ------
    ProgramError
        Called outside a program, or the operands do not fit."""
"""A section of the documentation that is made of an operator."""


def example_of(name: str) -> str:
    """Return the *Examples* section of an operator's documentation, which tests run; empty where there is none."""
    if name not in _examples():
        return ""
    *operands, shown = _examples()[name]
    printed = shown.replace("\\n", "\n    ")
    arrays = ", ".join(f"np.array({operand})" for operand in operands)
    return f"""

    Examples
    --------
    >>> with ss.Engine(device="simulated") as engine:
    ...     print(engine.run(ss.program(ss.ops.{name}), {arrays}))
    {printed}"""


@cache
def _examples() -> dict[str, list[str]]:
    lines = (pkgutil.get_data("streamscope.ops", "examples.txt") or b"").decode().splitlines()  # also where the package lies in a zip
    return {name: rest for name, *rest in (line.split(" | ") for line in lines)}
