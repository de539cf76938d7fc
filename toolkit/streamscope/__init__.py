"""Streamscope shows what a GPU really does with your operations: the same program under every engine, on one time axis.

All public names are loaded when they are first used, so that ``import streamscope`` is quick. They stand in ``__init__.pyi``, where type
checkers and editors find them too.
"""

# Nothing comes before `_stop_early`, not even `__future__`. These are C modules, and what Python has loaded by itself.
import _signal  # type: ignore[import-not-found]
import os
import sys


def _is_command_line() -> bool:
    """Tell whether this process is ``streamscope ...`` or ``python -m streamscope ...``, and not a program that imports the package."""
    if sys.argv[:1] == ["-m"]:  # as long as Python looks for the module
        return "".join(sys.orig_argv[-len(sys.argv) :][:1]).removeprefix("-m") == __name__
    folder, name = os.path.split(sys.argv[0] if sys.argv else "")
    return name == __name__ and os.path.realpath(folder) == os.path.realpath(os.path.split(sys.executable)[0])


def _stop_early(number: int, frame: object) -> None:
    """End the process on Ctrl-C, as `cli.main` does from when it has been imported. Nothing is open yet that would have to be closed."""
    os.write(2, b"error: interrupted\n")
    os._exit(128 + number)


if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler and _is_command_line():
    _signal.signal(_signal.SIGINT, _stop_early)

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


def load_ipython_extension(shell: "InteractiveShell") -> None:
    """Add the ``%%streamscope`` cell magic: ``%load_ext streamscope``."""
    from streamscope.results import widgets

    widgets.load("magics:register")(shell)
