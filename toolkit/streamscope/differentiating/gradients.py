"""Gradients of programs and of functions of our operators, in JAX's words: grad, value_and_grad, vjp."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import wraps
from typing import Any

from streamscope.arguments import are_strings, shown
from streamscope.differentiating.forward import Again, forward
from streamscope.docstrings import with_shared_parts
from streamscope.errors import ProgramError
from streamscope.kernels.elementwise.specialization import ElementwiseCall
from streamscope.program.operation import Operation
from streamscope.signatures import signature_of
from streamscope.tracing import ProgramFunction
from streamscope.words import a_kind, listed

Recompute = bool | str | Sequence[str]


@with_shared_parts
def grad(
    function: Callable[..., Any], argnums: int | Sequence[int] = 0, *, has_aux: bool = False, recompute: Recompute = False
) -> ProgramFunction:
    """Make the program that computes the gradients of a function, as ``jax.grad`` does.

    {differentiated}

    Returns
    -------
    program
        Takes the function's arguments. It returns the gradient of an argument, in its shape and dtype; a tuple for several ``argnums``.
        With ``has_aux``, it returns the gradients and the further results.

    {not_differentiable}

    Examples
    --------
    >>> def loss(w, x, y):
    ...     return ((x @ w - y) ** 2).mean()
    >>> x, y, w = np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([1.0, 2.0]), np.zeros(2)
    >>> with ss.Engine(device="simulated") as engine:
    ...     print(engine.run(ss.grad(loss), w, x, y))
    [ -7. -10.]
    """
    differentiated = _value_and_grad("ss.grad", function, argnums, recompute, has_aux=has_aux)

    def gradients(*arguments: object, **attributes: Any) -> Any:
        value, found = differentiated(*arguments, **attributes)
        return (found, value[1]) if has_aux else found

    return _program_of(gradients, function, "grad")


@with_shared_parts
def value_and_grad(
    function: Callable[..., Any], argnums: int | Sequence[int] = 0, *, has_aux: bool = False, recompute: Recompute = False
) -> ProgramFunction:
    """Make the program that computes a function and its gradients, as ``jax.value_and_grad`` does.

    {differentiated}

    Returns
    -------
    program
        Takes the function's arguments. In a program, it returns the function's result and the gradients; see `grad`. Where it is run by
        itself, all of them are results, one after the other.

    {not_differentiable}

    Examples
    --------
    >>> def loss(w, x):
    ...     return (w * x).sum()
    >>> @ss.program
    ... def step(w, x):
    ...     value, dw = ss.value_and_grad(loss)(w, x)
    ...     return value, w - 0.5 * dw
    >>> with ss.Engine(device="simulated") as engine:
    ...     print(*engine.run(step, np.array([1.0, 2.0]), np.array([4.0, 2.0])))
    8.0 [-1.  1.]
    """
    return _program_of(_value_and_grad("ss.value_and_grad", function, argnums, recompute, has_aux=has_aux), function, "value_and_grad")


@with_shared_parts
def vjp(function: Callable[..., Any], *arguments: Any, recompute: Recompute = False) -> Any:
    """Compute a function inside a program, and return its result and the way back, as ``jax.vjp`` does.

    The result may have any shape, and there may be several. Its gradient says how much each element counts.

    Parameters
    ----------
    function : callable or program
    *arguments : variable
        The function's arguments; also tuples, lists and dictionaries of them. Without any, a program is made: it takes them and, behind
        them, the gradient of the result, and returns their gradients.
    {recompute}

    Returns
    -------
    result
        The function's.
    pullback : callable
        ``pullback(gradient of the result) -> gradients of the arguments``, always a tuple; None for an argument of whole numbers. Where
        the result is a tuple, its gradient is one, too.

    {not_differentiable}

    Examples
    --------
    >>> def layer(x, w):
    ...     return ss.ops.relu(x @ w)
    >>> @ss.program
    ... def step(x, w, dy):
    ...     y, pullback = ss.vjp(layer, x, w)
    ...     dx, dw = pullback(dy)
    ...     return y, dx, dw
    >>> x, w, dy = np.array([[1.0, 2.0]]), np.array([[1.0], [2.0]]), np.array([[3.0]])
    >>> with ss.Engine(device="simulated") as engine:
    ...     y, dx, dw = engine.run(step, x, w, dy)
    ...     again, _ = engine.run(ss.vjp(layer), x, w, dy)
    >>> print(y, dx, dw.ravel(), again)
    [[5.]] [[3. 6.]] [3. 6.] [[3. 6.]]
    """
    _check_function("ss.vjp", function)
    again = _recomputed("ss.vjp", recompute)
    if arguments:
        computed, returned = forward("ss.vjp", function, arguments, {}, again)
        return returned, computed.pulled_back

    def gradients(*given: Any, **attributes: Any) -> Any:
        _check_fit(function, given, attributes)
        computed, _ = forward("ss.vjp", function, given[:-1], attributes, again)
        return computed.pulled_back(given[-1])

    gradients.__name__ = f"vjp({getattr(function, '__name__', 'function')})"
    return ProgramFunction(gradients, fuse=getattr(function, "fuse", False))


def _check_fit(function: Callable[..., Any], given: Sequence[Any], attributes: Mapping[str, Any]) -> None:
    """Raise a `ProgramError` unless ``given`` is the function's arguments and, last, the gradient of its result."""
    lacking = "" if len(given) > 1 else "the program takes the gradient of the result, too"
    with suppress(ValueError):  # A built-in function has no signature.
        try:
            signature_of(function).bind(*given[:-1], **attributes)
        except TypeError as error:
            lacking = lacking or str(error)
    if lacking:
        raise ProgramError(f"ss.vjp: {lacking}", hint="pass the function's arguments and, last, the gradient of the result")


def _value_and_grad(
    verb: str, function: Callable[..., Any], argnums: int | Sequence[int], recompute: Recompute, *, has_aux: bool
) -> Callable[..., Any]:
    """Return the function that returns both."""
    _check_function(verb, function)
    chosen, again = _places(verb, argnums), _recomputed(verb, recompute)

    def value_and_gradients(*arguments: Any, **attributes: Any) -> Any:
        computed, returned = forward(verb, function, arguments, attributes, again, chosen=chosen, has_aux=has_aux)
        found = computed.pulled_back(computed.seed())
        return returned, found if isinstance(argnums, Sequence) else found[0]

    return value_and_gradients


def _program_of(made: Callable[..., Any], function: Callable[..., Any], verb: str) -> ProgramFunction:
    """Return the program of a function that takes the arguments of another one."""
    named = wraps(function, updated=())(made)
    named.__name__ = f"{verb}({getattr(function, '__name__', 'function')})"
    return ProgramFunction(named, fuse=getattr(function, "fuse", False))


def _check_function(verb: str, function: object) -> None:
    if not callable(function):
        raise ProgramError(f"{verb} wants a function or a program, not {a_kind(function)}", hint=f"{verb}(loss)")


def _places(verb: str, argnums: Any) -> tuple[int, ...]:
    """Return the places of the arguments that ``argnums`` names."""
    given = tuple(argnums) if isinstance(argnums, list | tuple) else (argnums,)
    if not given or any(isinstance(each, bool) or not isinstance(each, int) for each in given):
        raise ProgramError(f"{verb}: argnums={shown(argnums)} must be the place of an argument", hint="give 0, or several: (0, 2)")
    if len(set(given)) < len(given):
        raise ProgramError(f"{verb}: argnums={shown(argnums)} has one place twice", hint="give each place once: (0, 2)")
    return given


def _recomputed(verb: str, recompute: Any) -> Again:
    """Return which operations ``recompute`` names."""
    if isinstance(recompute, bool):
        return lambda _: _is_elementwise if recompute else _is_kept
    names = {recompute} if isinstance(recompute, str) else set(recompute) if are_strings(recompute) else set()
    if not names:
        hint = 'give True for all that is element-wise, or names of operators or labels: ["softmax", "block"]'
        raise ProgramError(f"{verb}: recompute={shown(recompute)} names no operations", hint=hint)

    def again(operations: Sequence[Operation]) -> Callable[[Operation], bool]:
        known = dict.fromkeys(name for operation in operations for name in _names(operation))
        if unknown := sorted(names.difference(known)):
            said = f"{verb}: no operation has the name or the label {listed(list(map(repr, unknown)))} of recompute="
            raise ProgramError(said, hint=f"there are {listed(list(known))}" if known else "there are no operations")
        return lambda operation: not names.isdisjoint(_names(operation))

    return again


def _names(operation: Operation) -> list[str]:
    """Return the names under which an operation can be computed again: its operator's, its label, and the parts of that."""
    return [operation.name, *filter(None, (operation.label, *operation.label.split("/")))]


def _is_kept(operation: Operation) -> bool:
    return False


def _is_elementwise(operation: Operation) -> bool:
    return bool(operation.launches) and all(isinstance(launch.cuda, ElementwiseCall) for launch in operation.launches)
