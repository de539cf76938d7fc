"""Public names of a package that are loaded when they are first used, so that the package itself is quick to import.

They stand in the package's stub, ``__init__.pyi``, where type checkers and editors find them too: a name stands there and nowhere else.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

ELSEWHERE = {
    "cat": "concatenate", "conv2d": "convolution", "div": "divide", "gelu": "x * (1 + ss.ops.erf(x / 2**0.5)) / 2", "linear": "x @ w + b",
    "mul": "multiply", "silu": "x * ss.ops.sigmoid(x)", "sub": "subtract",
}  # fmt: skip
"""Our names for PyTorch's."""


def public_names(package: str, *defined: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` of a package, which also answer for its ``__all__``.

    ``*defined``: public names that the package defines itself.
    """

    def __getattr__(name: str) -> Any:  # noqa: N807 — becomes the package's
        homes = _modules_of_names(package)
        if name == "__all__":
            return sorted([*homes, *defined])
        if name not in homes:
            raise _unknown(homes, package, name)
        home = homes[name]
        value = importlib.import_module(f"{home}.{name}") if home == package else getattr(importlib.import_module(home), name)
        setattr(sys.modules[package], name, value)
        return value

    def __dir__() -> list[str]:  # noqa: N807
        return list(__getattr__("__all__"))

    return __getattr__, __dir__


def _unknown(homes: Mapping[str, str], package: str, name: str) -> AttributeError:
    """Return an error that says where the name is, or which name is near: Python says that in a terminal, and IPython does not.

    Operators had their names in ``ss`` before `ss.ops` had them.
    """
    from difflib import get_close_matches

    if package == "streamscope" and "ops" in homes and name in _modules_of_names("streamscope.ops"):
        hint = f": ss.{name} is ss.ops.{name} now"
    else:
        known = [each for each in homes if not each.startswith("_")]
        near = [ELSEWHERE[name]] if package.endswith(".ops") and name in ELSEWHERE else get_close_matches(name, known, 1)
        hint = f" (did you mean {near[0]}?)" if near else ""
    # With the name, and without the object, Python has no guess of its own to add.
    return AttributeError(f"module {package!r} has no attribute {name!r}{hint}", name=name)


@cache
def _modules_of_names(package: str) -> dict[str, str]:
    """Return the module of each public name, as the stub imports them; a package's own part is imported from the package."""
    import ast
    import pkgutil

    stub = ast.parse(pkgutil.get_data(package, "__init__.pyi") or b"")  # also where the package lies in a zip
    imports = [node for node in stub.body if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("streamscope")]
    return {alias.name: str(node.module) for node in imports for alias in node.names}
