"""Streamscope shows what a GPU really does with your operations: the same program under every engine, on one time axis.

All public names are loaded when they are first used, so that ``import streamscope`` is quick. They stand in ``__init__.pyi``, where type
checkers and editors find them too.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from streamscope.public_names import public_names

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

__version__ = "0.1.0"

# Importing the package `streamscope.program` puts it in the place of the decorator of that name, but only the first time.
importlib.import_module("streamscope.program")
del globals()["program"]

__getattr__, __dir__ = public_names(__name__, "load_ipython_extension")


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Add the ``%%streamscope`` cell magic: ``%load_ext streamscope``."""
    from streamscope.display import register_magics

    register_magics(shell)
