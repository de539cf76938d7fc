"""Streamscope shows what a GPU really does with your operations: the same program under every engine, on one time axis.

All public names but one are loaded when they are first used, so that ``import streamscope`` is quick. They stand in ``__init__.pyi``,
where type checkers and editors find them too.
"""

from __future__ import annotations

import ast
import importlib
import pkgutil
from typing import TYPE_CHECKING, Any

# Not lazily: `streamscope.program` is also a package, and the import of any module in it would put the package under this name.
from streamscope.program.tracing import program  # noqa: F401 — named in `__all__`, which is computed

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell


def _modules_of_names() -> dict[str, str]:
    """Return the module of each public name, as the stub imports them."""
    stub = ast.parse(pkgutil.get_data(__name__, "__init__.pyi") or b"")  # also where the package lies in a zip
    imports = [node for node in stub.body if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("streamscope.")]
    return {alias.name: node.module for node in imports for alias in node.names}


_HOME = _modules_of_names()
__all__ = sorted([*_HOME, "load_ipython_extension"])  # noqa: PLE0605 — computed, and pinned by a test
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'streamscope' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Add the ``%%streamscope`` cell magic: ``%load_ext streamscope``."""
    from streamscope_widgets.magics import register

    register(shell)
