"""Operators: shapes, NumPy reference, cost, and how they launch on CUDA.

Each raises a `ProgramError` where it is called outside a program, or with wrong arguments: it names the operator, the variables and
your line. All are loaded when they are first used. They stand in ``__init__.pyi``, where type checkers and editors find them too.
"""

from streamscope.public_names import public_names

__getattr__, __dir__ = public_names(__name__)
