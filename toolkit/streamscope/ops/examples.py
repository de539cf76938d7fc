"""Documentation of operators that are made of data; operands and printed results of their examples stand in ``examples.txt``."""

from __future__ import annotations

import inspect
import pkgutil
from collections.abc import Callable
from functools import cache
from typing import Any


def documentation(summary: str, call: Callable[..., Any], *sections: str) -> str:
    """Return the documentation of an operator: a sentence, all but the first of how it is called, and further sections."""
    _, _, called = inspect.cleandoc(call.__doc__ or "").partition("\n\n")
    return "\n\n".join(filter(None, (summary, called, *sections)))


def example_of(name: str) -> str:
    """Return the *Examples* section of an operator's documentation, which tests run; empty where there is none."""
    if name not in _examples():
        return ""
    *operands, shown = _examples()[name]
    arrays = ", ".join(f"np.array({operand})" for operand in operands)
    run = f"engine.run(ss.program(ss.ops.{name}), {arrays})"
    lines = ["Examples", "--------", '>>> with ss.Engine(device="simulated") as engine:', f"...     print({run})", *shown.split("\\n")]
    return "\n".join(lines)


@cache
def _examples() -> dict[str, list[str]]:
    lines = (pkgutil.get_data("streamscope.ops", "examples.txt") or b"").decode().splitlines()  # also where the package lies in a zip
    return {name: rest for name, *rest in (line.split(" | ") for line in lines)}
