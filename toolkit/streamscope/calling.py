"""How every verb is called: a function or a program, then its inputs, then keywords.

``ss.compare(step, x, w, engines="async,graph", training=True)`` compares the engines on ``step(x, w, training=True)``. One rule says whose
a keyword is, for every verb: a name that the verb has is the verb's, and every other name has to be a parameter of the function. Such
*attributes* reach the function as they are, but for arrays by the names of the parameters that come next: these are inputs. A keyword
that could be either, since it was given and both have one, is refused.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from difflib import get_close_matches
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from streamscope.docstrings import with_shared_parts
from streamscope.errors import EngineError, KeywordError, ProgramError
from streamscope.program.foreign import ForeignProgram
from streamscope.program.operation import Program
from streamscope.program.user_line import user_line
from streamscope.signatures import signature_of
from streamscope.tracebacks import users_lines_shown
from streamscope.tracing import ProgramFunction
from streamscope.words import a_kind

P = ParamSpec("P")
_R = TypeVar("_R")

_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def verb(function: Callable[P, _R]) -> Callable[P, _R]:
    """Make a verb of ``function(program, /, *inputs, ..., **attributes)``.

    Plain functions become programs, keywords are checked, and its documentation gets the parts that verbs share.

    Raises
    ------
    KeywordError
        Neither the verb nor the program has a keyword of that name, or both have.
    EngineError
        Memory is limited of captured code.
    """
    parameters = inspect.signature(with_shared_parts(function)).parameters.values()
    own = tuple(parameter.name for parameter in parameters if parameter.kind is inspect.Parameter.KEYWORD_ONLY)

    @wraps(function)
    def called(*arguments: P.args, **keywords: P.kwargs) -> _R:
        with users_lines_shown():
            program, inputs = (as_program(arguments[0]), arguments[1:]) if arguments else (None, ())
            check_keywords(f"ss.{function.__name__}", own, program, inputs, keywords)
            limit = keywords.get("memory_limit")
            if isinstance(program, ForeignProgram) and limit is not None:
                raise EngineError(
                    f"captured {program.name!r} holds the memory of its capture under every engine, so memory_limit= chooses none",
                    hint="give the limit to ss.capture or ss.parallelise instead",
                )
            if isinstance(program, ProgramFunction) and keywords.keys() - own:
                inputs, keywords = program.by_position(inputs, keywords)  # type: ignore[assignment]
            return function(program, *inputs, **keywords) if arguments else function(**keywords)  # type: ignore[call-arg, arg-type]

    return called


def as_program(given: object) -> object:
    """Resolve the argument of a verb: a plain function becomes a program, a parallelised one its captured code."""
    if isinstance(captured := getattr(given, "captured", None), ForeignProgram):
        return captured
    return ProgramFunction(given) if callable(given) and not isinstance(given, ProgramFunction) else given


def traced(caller: str, program: object, inputs: Sequence[Any], attributes: Mapping[str, Any]) -> Program:
    """Return the traced program that a verb was given, traced or not; ``caller`` is how errors name the verb."""
    if isinstance(program, Program):
        return program
    if isinstance(program, ForeignProgram):
        check_captured(caller, program, inputs)
        return program.trace()
    if isinstance(program, ProgramFunction):
        return program.trace(*inputs, **attributes)
    raise no_program(caller, program)


def check_captured(caller: str, program: ForeignProgram, inputs: Sequence[Any]) -> None:
    """Check that captured code, which has its inputs already, got no others."""
    if inputs:
        raise ProgramError(f"captured {program.name!r} takes no inputs: the capture holds its own", hint=f"call {caller}(captured)")


def no_program(caller: str, given: object) -> ProgramError:
    """Return the error of a verb that was given something else than a function or a program."""
    hint = f"{caller}(function, *inputs), and keywords"
    if isinstance(given, str):
        hint += "; of a workload: function, inputs = ss.workload(name).build()"
    return ProgramError(f"{caller} wants a function or a program, not {a_kind(given)}", hint=hint)


def check_keywords(caller: str, own: Collection[str], program: object, inputs: Sequence[Any], keywords: Mapping[str, object]) -> None:
    """Check that each keyword is the verb's own or the program's, and not both."""
    theirs, takes_all = _attributes_of(program, len(inputs))
    bound = getattr(getattr(program, "function", None), "keywords", {})  # of a `functools.partial`: settled, so no rival of ours
    name = getattr(program, "name", "the function")
    for keyword in keywords:
        if keyword in own and keyword in theirs and keyword not in bound:
            raise KeywordError(
                f"{caller} at {user_line()}: {keyword}= is a keyword of {caller}, and {name!r} has a parameter of that name",
                hint=f"rename the parameter, or bind it before: functools.partial({name}, {keyword}=...)",
            )
        if keyword not in own and keyword not in theirs and not takes_all:
            near = get_close_matches(keyword, (*own, *theirs), n=1)
            every = [f"it has {', '.join(own)}"] * bool(own) + [f"{name!r} has {', '.join(theirs)}"] * bool(theirs)
            hint = f"did you mean {near[0]}?" if near else "; ".join(every) or f"{name!r} has none"
            raise KeywordError(f"{caller} at {user_line()} has no keyword {keyword!r}", hint=hint)


def _attributes_of(program: object, count: int) -> tuple[list[str], bool]:
    """Return which parameters a program's function has beside its first ``count`` inputs, and whether it takes any name."""
    if not isinstance(program, ProgramFunction):
        return [], False  # A traced program's attributes are settled, and captured code has none.
    try:
        parameters = list(signature_of(program.function).parameters.values())
    except (TypeError, ValueError):  # a built-in function without a signature
        return [], False
    positional = [parameter for parameter in parameters if parameter.kind in (inspect.Parameter.POSITIONAL_ONLY, _NAMED[0])]
    filled = {parameter.name for parameter in positional[:count]}
    names = [parameter.name for parameter in parameters if parameter.kind in _NAMED and parameter.name not in filled]
    return names, any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters)
