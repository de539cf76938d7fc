"""Symbols, which stand for arrays in a traced function."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import wraps
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np

from streamscope.errors import ProgramError, UnknownAttributeError
from streamscope.program.aliasing import Aliasing
from streamscope.program.user_line import user_line
from streamscope.program.variable import ArraySpec, MemoryPlace
from streamscope.program.view import View, whole

if TYPE_CHECKING:
    from streamscope.program.tracer import Tracer

operators: dict[str, Callable[..., Any]] = {}
"""Python's operators and NumPy's functions on symbols, by name: `streamscope.tracing`, which stands above, fills it in."""
_Method = TypeVar("_Method", bound=Callable[..., Any])


def refused(what: str, hint: str) -> ProgramError:
    """Return the error for a function of NumPy's, or an argument of one, that no operator has."""
    return ProgramError(f"a program has no operator for NumPy's {what} at {user_line()}", hint=hint)


def unknown_options(function: str, names: Iterable[str]) -> ProgramError:
    """Return the error for options of a function of NumPy's that no operator has."""
    names = sorted(names)
    return refused(f"{function} with {', '.join(f'{name}=' for name in names)}", f"leave {' and '.join(names)} out")


def is_same(value: object, default: object) -> bool:
    """Tell whether an option is NumPy's default, which changes nothing."""
    return value is default or (isinstance(value, int | str) and value == default)


def bound(
    function: str, signature: inspect.Signature, arguments: Iterable[object], options: Mapping[str, object]
) -> inspect.BoundArguments:
    """Bind the arguments of a call; what does not fit is refused by name."""
    try:
        return signature.bind(*arguments, **options)
    except TypeError as error:
        named = {name for name, each in signature.parameters.items() if each.kind is not inspect.Parameter.VAR_POSITIONAL}
        if unknown := options.keys() - named:
            raise unknown_options(function, unknown) from None
        raise refused(f"{function} with such arguments", f"{error}") from None


def _of_arrays(**defaults: object) -> Callable[[_Method], _Method]:
    """Let a method refuse by name all that NumPy's takes besides; ``defaults`` are those of further options, which change nothing."""

    def decorate(method: _Method) -> _Method:
        signature = inspect.signature(method)

        @wraps(method)
        def checked(self: Symbol, *arguments: object, **options: object) -> Any:
            given = {name: value for name, value in options.items() if name not in defaults or not is_same(value, defaults[name])}
            bound(method.__name__, signature, (self, *arguments), given)
            return method(self, *arguments, **given)

        return cast("_Method", checked)

    return decorate


@dataclass(eq=False, repr=False)
class Symbol:
    """Stand-in for an array in a traced function: a variable of the program that is being made.

    Attributes
    ----------
    tracer : Tracer
    id : int
    spec : ArraySpec
    name : str
    place : MemoryPlace, optional
        None for an input that nothing has used yet: it lies where it is first used.
    written : bool
        False for `ss.empty` until an operation has written it.
    sharing : Aliasing
        NumPy's counterpart.
    taken_from : Symbol, optional
        Its base in NumPy, where it is a copy here: ``x[i]`` for a number i of the program.
    outdated : bool
        Whether that was written since.
    gpu : int
        The GPU whose memory it lies in, once it has a place; 0 for host memory.

    Examples
    --------
    >>> @ss.program
    ... def scaled(x):
    ...     print(x, x.shape, x.dtype)           # called once, with a symbol
    ...     return np.tanh(x) * 2 + 1            # NumPy's and Python's operators become operations
    >>> traced = scaled.trace(np.ones((2, 3)))
    x:float64[2, 3] (2, 3) float64
    >>> [operation.name for operation in traced.operations]
    ['tanh', 'multiply', 'add']
    """

    tracer: Tracer
    id: int
    spec: ArraySpec
    name: str
    place: MemoryPlace | None
    written: bool = True
    sharing: Aliasing = Aliasing.ARRAY
    taken_from: Symbol | None = None
    outdated: bool = False
    gpu: int = 0

    @property
    def base(self) -> Symbol:
        """The variable."""
        return self

    @property
    def stale(self) -> str:
        """Name of its base in NumPy, if that was written since: it has the old values. Else empty."""
        if self.taken_from is None:
            return ""
        return self.taken_from.name if self.outdated else self.taken_from.stale

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the array."""
        return self.spec.shape

    @property
    def dtype(self) -> np.dtype[np.generic]:
        """Dtype of the array."""
        return self.spec.dtype

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.spec.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return self.spec.size

    @property
    def seen(self) -> View | None:
        """How the variable is seen, if not as it is."""
        return None

    @property
    def T(self) -> Symbol:  # noqa: N802 — NumPy's name
        """A view with all axes in reverse; see `ss.ops.transpose`."""
        return self._rearranged("transpose")

    @property
    def mT(self) -> Symbol:  # noqa: N802 — NumPy's name
        """A view with the last two axes swapped."""
        return self._rearranged("mT")

    @_of_arrays()
    def transpose(self, *axes: Any) -> Symbol:
        """Return a view with the axes in another order, in reverse by default; see `ss.ops.transpose`."""
        return self._rearranged("transpose", axes[0] if len(axes) == 1 and not isinstance(axes[0], int) else axes or None)

    @_of_arrays()
    def swapaxes(self, axis1: int, axis2: int) -> Symbol:
        """Return a view with two axes swapped; see `ss.ops.swapaxes`."""
        return self._rearranged("swapaxes", axis1, axis2)

    @_of_arrays()
    def squeeze(self, axis: int | tuple[int, ...] | None = None) -> Symbol:
        """Return a view without axes of extent 1; see `ss.ops.squeeze`."""
        return self._rearranged("squeeze", axis)

    @_of_arrays(copy=None)
    def reshape(self, *shape: Any, order: str = "C") -> Symbol:
        """Return the elements in another shape, a view where that is possible, else a copy; see `ss.ops.reshape`."""
        return self._rearranged("reshape", shape[0] if len(shape) == 1 else shape, order=order)

    @_of_arrays()
    def ravel(self, order: str = "C") -> Symbol:
        """Return the elements along one axis, a view where that is possible, else a copy; see `ss.ops.ravel`."""
        return self._rearranged("ravel", order=order)

    @_of_arrays()
    def flatten(self, order: str = "C") -> Symbol:
        """Return a copy of the elements along one axis."""
        return self._rearranged("flatten", order=order)

    @_of_arrays()
    def copy(self, order: str = "C") -> Symbol:
        """Return a copy in memory of its own; see `ss.ops.copy`."""
        return self._rearranged("copy", order=order)

    def _reduced(operator: str) -> Callable[..., Symbol]:  # type: ignore[misc]  # noqa: N805 — makes methods, is none.
        function = getattr(np, operator)

        def method(self: Symbol, *arguments: object, **options: object) -> Symbol:
            # NumPy's method takes what its function takes: axis, keepdims and out, and refuses the others by name.
            result: Symbol = operators["__array_function__"](function, (self, *arguments), options)
            return result

        method.__name__, method.__doc__ = operator, f"Reduce the array, or some of its axes: see `ss.ops.{operator}`."
        method.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]
        return method

    sum, mean, prod, max, min = _reduced("sum"), _reduced("mean"), _reduced("prod"), _reduced("max"), _reduced("min")
    any, all, argmax, argmin = _reduced("any"), _reduced("all"), _reduced("argmax"), _reduced("argmin")
    del _reduced

    def __getitem__(self, key: object) -> Symbol:
        return self._rearranged("index", key)

    def _rearranged(self, how: str, *arguments: object, order: object = "C") -> Symbol:
        if order != "C":
            raise ProgramError(
                f"{how} of {self.name!r} with order={order!r} at {user_line()}: a program goes through elements last axis fastest",
                hint="leave order out; x.T has the axes in reverse",
            )
        result: Symbol = operators[how](self, *arguments)
        return result

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of unsized object")  # as NumPy does
        return self.shape[0]

    def __iter__(self) -> Iterator[Symbol]:
        if not self.shape:
            raise TypeError("iteration over a 0-d array")  # as NumPy does
        return (self[index] for index in range(len(self)))

    __hash__ = object.__hash__

    def __getattr__(self, name: str) -> Any:
        # Python asks for special names to find out what an object can do; and a symbol that is being copied has no fields yet.
        if name.startswith("__") or "name" not in vars(self):
            raise AttributeError(name)
        raise UnknownAttributeError(
            f"{self.name!r} has no attribute .{name} at {user_line()}: it is a variable of a program, not an array",
            hint=_instead_of(name),
        )

    def _applied(operator: str, *, reflected: bool = False) -> Callable[..., Symbol]:  # type: ignore[misc]  # noqa: N805 — makes methods, is none.
        def method(self: Symbol, *others: object) -> Symbol:
            apply = operators[operator]
            result: Symbol = apply(*others, self) if reflected else apply(self, *others)
            return result

        return method

    def _in_place(operator: str) -> Callable[[Symbol, object], Symbol]:  # type: ignore[misc]  # noqa: N805 — makes methods, is none.
        def method(self: Symbol, other: object) -> Symbol:
            result: Symbol = operators["update"](operator, self, other)
            return result

        return method

    __neg__, __abs__, __invert__ = _applied("negative"), _applied("abs"), _applied("bitwise_not")
    __add__, __radd__ = _applied("add"), _applied("add", reflected=True)
    __sub__, __rsub__ = _applied("subtract"), _applied("subtract", reflected=True)
    __mul__, __rmul__ = _applied("multiply"), _applied("multiply", reflected=True)
    __truediv__, __rtruediv__ = _applied("divide"), _applied("divide", reflected=True)
    __floordiv__, __rfloordiv__ = _applied("floor_divide"), _applied("floor_divide", reflected=True)
    __matmul__, __rmatmul__ = _applied("matmul"), _applied("matmul", reflected=True)
    __mod__, __rmod__ = _applied("mod"), _applied("mod", reflected=True)
    __pow__, __rpow__ = _applied("power"), _applied("power", reflected=True)
    __and__, __rand__ = _applied("bitwise_and"), _applied("bitwise_and", reflected=True)
    __or__, __ror__ = _applied("bitwise_or"), _applied("bitwise_or", reflected=True)
    __xor__, __rxor__ = _applied("bitwise_xor"), _applied("bitwise_xor", reflected=True)
    __lshift__, __rlshift__ = _applied("left_shift"), _applied("left_shift", reflected=True)
    __rshift__, __rrshift__ = _applied("right_shift"), _applied("right_shift", reflected=True)
    __iadd__, __isub__, __imul__ = _in_place("add"), _in_place("subtract"), _in_place("multiply")
    __itruediv__, __ifloordiv__, __imod__ = _in_place("divide"), _in_place("floor_divide"), _in_place("mod")
    __ipow__, __imatmul__ = _in_place("power"), _in_place("matmul")
    __iand__, __ior__, __ixor__ = _in_place("bitwise_and"), _in_place("bitwise_or"), _in_place("bitwise_xor")
    __ilshift__, __irshift__ = _in_place("left_shift"), _in_place("right_shift")
    __floor__, __ceil__, __trunc__ = _applied("floor"), _applied("ceil"), _applied("trunc")
    # A comparison is a variable too; a branch on it raises, in `__bool__`.
    __eq__, __ne__ = _applied("equal"), _applied("not_equal")  # type: ignore[assignment]
    __lt__, __le__, __gt__, __ge__ = _applied("less"), _applied("less_equal"), _applied("greater"), _applied("greater_equal")
    del _applied, _in_place

    def __copy__(self) -> Symbol:
        return self.copy()

    def __deepcopy__(self, memo: object) -> Symbol:
        return self.copy()

    def __pos__(self) -> Symbol:
        # Not the symbol itself: NumPy returns a copy, which stays what it is when the variable is written.
        raise ProgramError(f"unary + on {self.name!r} at {user_line()} is not an operator of a program", hint="leave the + out")

    def __divmod__(self, other: object) -> tuple[Symbol, Symbol]:
        return self // other, self % other

    def __rdivmod__(self, other: object) -> tuple[Symbol, Symbol]:
        return other // self, other % self

    def __round__(self, digits: object = None) -> Symbol:
        if digits is None:
            result: Symbol = operators["round"](self)
            return result
        from streamscope.arguments import shown

        raise ProgramError(
            f"round() of {self.name!r} to {shown(digits)} digits at {user_line()} is not an operator of a program",
            hint="round to whole numbers, and scale before and after: ss.ops.round(x * 100) / 100",
        )

    @_of_arrays(order="K", casting="unsafe", subok=True)
    def astype(self, dtype: Any, *, copy: bool = True) -> Symbol:
        """Return the variable in another dtype: `streamscope.ops.astype`."""
        result: Symbol = operators["astype"](self, dtype, copy=copy)
        return result

    def __array_ufunc__(self, function: np.ufunc, method: str, *inputs: object, **options: object) -> Any:
        return operators["__array_ufunc__"](function, method, inputs, options)

    def __array_function__(
        self, function: Callable[..., Any], types: object, arguments: tuple[object, ...], options: dict[str, object]
    ) -> Any:
        return operators["__array_function__"](function, arguments, options)

    def __array__(self, *arguments: object, **options: object) -> Any:
        raise ProgramError(
            f"NumPy at {user_line()} asks for the values of {self.name!r}, which has none while the program is traced",
            hint="use Streamscope's operators, or call NumPy in a host function",
        )

    def __bool__(self) -> bool:
        raise ProgramError(
            f"{user_line()} branches on the value of {self.name!r}, which is not known while it is traced",
            hint="choose element by element with ss.ops.where, or ss.ops.maximum for max; branch on shapes or Python values only",
        )

    def __repr__(self) -> str:
        return f"{self.name}:{self.spec}"

    def _unsupported(self, operation: str) -> ProgramError:
        return ProgramError(
            f"{operation} on {self.name!r} at {user_line()} is not an operator of a program",
            hint="use the operators of streamscope, ss.host_function, or an ss.operator of your own",
        )

    def _refuse(operation: str) -> Any:  # type: ignore[misc]  # noqa: N805 — makes methods, is none.
        def method(self: Symbol, *others: object) -> Any:
            raise self._unsupported(operation)

        return method

    __float__, __int__, __complex__, __delitem__ = _refuse("float()"), _refuse("int()"), _refuse("complex()"), _refuse("item deletion")
    del _refuse

    def __setitem__(self, key: object, values: object) -> None:
        operators["set_item"](self, key, values)


def _of_base(name: str, doc: str) -> Any:
    """Return a property of a view that is its variable's."""
    return property(attrgetter(f"base.{name}"), lambda view, value: setattr(view.base, name, value), doc=doc)


class SymbolView(Symbol):
    """A view of a variable: its memory, seen as another array. An operation that reads it reads the variable.

    Where NumPy has a copy, it is one as soon as the variable is written: until then, nobody can tell.
    """

    def __init__(self, base: Symbol, view: View, sharing: Aliasing = Aliasing.ARRAY) -> None:
        self.see(base, view)
        self.tracer = base.tracer
        self.spec = view.spec
        self.name = f"{base.name}{view}"
        self.sharing = sharing
        if sharing in (Aliasing.NUMBER, Aliasing.COPY):
            self.tracer.before_writes(self.id, self)

    def see(self, base: Symbol, view: View) -> None:
        """Become a view of another variable."""
        self._base, self.id, self.view = base, base.id, view
        self._seen = None if view == whole(base.spec) else view

    @property
    def base(self) -> Symbol:
        """The variable."""
        return self._base

    @property
    def seen(self) -> View | None:
        """How the variable is seen, if not as it is."""
        return self._seen

    @property
    def stale(self) -> str:
        """Name of the variable's base in NumPy, if that was written since; numbers do not see that. Else empty."""
        return "" if self.sharing is Aliasing.NUMBER else self.base.stale

    place = _of_base("place", "Where the variable lies.")
    gpu = _of_base("gpu", "The GPU whose memory the variable lies in.")
    written = _of_base("written", "Whether the variable has been written.")


def view_of(symbol: Symbol) -> View:
    """Return how a symbol sees its variable."""
    return symbol.seen or whole(symbol.spec)


def symbol_of(symbol: Symbol, view: View, sharing: Aliasing) -> Symbol:
    """Return a symbol for another view of the same variable; one that there is, where that is the same."""
    if sharing is symbol.sharing and view == view_of(symbol):
        return symbol
    base = symbol.base
    return base if sharing is base.sharing and view == whole(base.spec) else SymbolView(base, view, sharing)


def _instead_of(attribute: str) -> str:
    """Name the replacement of an array's attribute or method in a program."""
    if attribute == "dot":
        return "use a @ b, or ss.ops.matmul(a, b)"
    if attribute in operators["__dir__"]():
        return f"use the operator: ss.ops.{attribute}(...)"
    if attribute in ("item", "tolist", "get", "numpy", "cpu"):
        return "values are known when the program runs: return the variable, or read it in a host function"
    return "change the array before it goes into the program, or make an operator of your own with ss.operator"
