"""Streamscope shows what a GPU really does with your operations: the same program under every engine, on one time axis.

All public names are loaded when they are first used, so that ``import streamscope`` is quick. They stand in ``__init__.pyi``, where type
checkers and editors find them too.
"""

from __future__ import annotations

import importlib
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

__version__ = "0.1.0"

# Importing the package `streamscope.program` puts it in the place of the decorator of that name, but only the first time.
importlib.import_module("streamscope.program")
del globals()["program"]


@cache
def _modules_of_names() -> dict[str, str]:
    """Return the module of each public name, as the stub imports them."""
    import ast
    import pkgutil

    stub = ast.parse(pkgutil.get_data(__name__, "__init__.pyi") or b"")  # also where the package lies in a zip
    imports = [node for node in stub.body if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("streamscope.")]
    return {alias.name: node.module for node in imports for alias in node.names}


def __getattr__(name: str) -> Any:
    if name == "__all__":
        return sorted([*_modules_of_names(), "load_ipython_extension"])
    if name not in _modules_of_names():
        raise AttributeError(f"module 'streamscope' has no attribute {name!r}")
    value = getattr(importlib.import_module(_modules_of_names()[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__getattr__("__all__")})


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Add the ``%%streamscope`` cell magic: ``%load_ext streamscope``."""
    from streamscope.display import register_magics

    register_magics(shell)
