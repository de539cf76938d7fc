"""The parameters that commands share, and checks of their values."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from streamscope import arguments, options
from streamscope.errors import OutputError, StreamscopeError, WorkloadError, described
from streamscope.words import listed

_CAPTURED = ".captured.json"
_ANSWERS_S = 10
"""So long a Dask scheduler is waited for."""
GUEST_ENDINGS = "{endings of other packages}"
"""Stands in a help for the endings of files that other packages write."""
WORKLOAD = "`streamscope workloads` lists them; or a .captured.json."


class WrongUsageError(StreamscopeError):
    """An argument names something that does not exist, or has a value that it cannot have."""


def shared(option: options.Option) -> Any:
    """Return Typer's option for one of `streamscope.options`."""
    if option.switch:
        return typer.Option(option.flag, help=option.help, show_default=False)
    return typer.Option(
        option.flag,
        metavar=option.metavar,
        help=option.help,
        min=option.least,
        max=option.most,
        callback=_accepted(option) if (option.first or option.door) and not option.several else None,
        show_default=option.default is not None,
    )


class Command(TyperCommand):
    """A command whose help lists entries of other packages, too. They are loaded when the help is shown, and not before."""

    def format_help(self, *arguments: Any) -> None:
        """Write the help."""
        shared_options = {option.flag: option for option in options.COMPARE_OPTIONS}
        parameters: list[Any] = self.params
        for parameter in parameters:
            if option := shared_options.get(parameter.opts[0]):
                parameter.metavar, parameter.help = "|".join(option.choices) or option.metavar or None, option.whole_help
            elif GUEST_ENDINGS in (parameter.help or ""):
                parameter.help = parameter.help.replace(GUEST_ENDINGS, _guest_endings())
        super().format_help(*arguments)


def _guest_endings() -> str:
    from streamscope.trace.format import FORMATS, writers

    found = [suffix for suffix, each in writers().items() if each.name not in FORMATS.own]
    return f"; of other packages {listed(found)}" if found else ""


def _accepted(option: options.Option) -> Callable[[str | None], str | None]:
    """Return a check that an option has one of its choices, which are asked for when there is a value."""

    def check(value: str | None) -> str | None:
        if value is not None and not option.accepts(value):
            raise typer.BadParameter(f"{value!r} is not one of {', '.join(option.choices)}")
        return value

    return check


def given_path(text: str) -> Path:
    """Return the path that an option names; an empty one, of a variable that is not set, would be the current folder."""
    try:
        return arguments.given_path(text, error=OutputError)
    except OutputError as error:
        raise typer.BadParameter(f"{error.message}: {error.hint}") from None


def out(metavar: str, written: str) -> Any:
    """Return the option that names where a command writes."""
    return typer.Option("--out", metavar=metavar, parser=given_path, help=written, show_default=False)


Settings = Annotated[list[str] | None, shared(options.SET)]
Scale = Annotated[
    list[str] | None,
    typer.Option("--scale", metavar="KERNEL=FACTOR", help="Kernels by name take so many times as long: '*nvjet*=0.5'. May be given again."),
]
Without = Annotated[
    list[str] | None,
    typer.Option("--without", metavar="KERNEL", help="Leave out kernels by name, or copy, set, host. May be given again."),
]
ExecutorName = Annotated[
    str | None,
    typer.Option(
        "--executor",
        metavar="processes|HOST:PORT",
        help="Who does the work: two processes, or the workers of the Dask scheduler at that address.",
        show_default=False,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]


WRONG_SETTING = partial(typer.BadParameter, param_hint=options.SET.flag)
WRONG_GPUS = partial(typer.BadParameter, param_hint=options.GPUS.flag)


def is_captured(name: str) -> bool:
    """Tell whether a workload is named by a file of captured code."""
    return name.endswith(_CAPTURED) or ("." in name and Path(name).is_file())


def built(name: str, values: Mapping[str, int | str], gpus: int | Sequence[int] | None = None) -> tuple[Any, Sequence[Any], dict[str, int]]:
    """Return a workload's program and inputs, and all its settings, those that were not given by their defaults.

    A workload over several GPUs is made for those to run on. Captured code, the file of which is named, has its inputs.
    """
    if is_captured(name):
        from streamscope.capturing.saved import load_captured

        if values:
            raise WrongUsageError("captured code has no settings", hint="leave --set out")
        return load_captured(name), (), {}
    from streamscope.workloads import workload

    try:
        found = workload(name)
        values = found.on_gpus(values, gpus)
        program, inputs = found.build(**values)
    except WorkloadError as error:
        raise WrongUsageError(error.message, hint=error.hint) from None
    return program, inputs, {key: int(values.get(key, setting.default)) for key, setting in found.settings.items()}


@contextmanager
def executor_of(name: str | None) -> Iterator[Executor | str | None]:
    """Open the executor that ``--executor`` names, and close it behind the work.

    Raises
    ------
    WrongUsageError
        The name is neither ``processes`` nor an address, Dask is missing, or no scheduler answers there.
    """
    from streamscope.workers import PROCESSES

    if name is None or name == PROCESSES:
        yield name
        return
    if not re.fullmatch(r"(\w+://)?[^/\s]+:\d{1,5}", name):
        raise WrongUsageError(
            f"--executor {name!r:.60} is neither {PROCESSES} nor an address", hint="for example --executor scheduler:8786"
        )
    try:
        from distributed import Client
    except ImportError:
        way = "pip install '.[cluster]' in the clone, or pip install distributed"
        raise WrongUsageError("an executor at an address needs Dask", hint=way) from None
    try:
        client = Client(name, timeout=_ANSWERS_S)
    except (OSError, ValueError) as error:
        raise WrongUsageError(f"no Dask scheduler answers at {name}: {described(error)}", hint="start one with dask scheduler") from None
    with client:
        yield client.get_executor()


def kernel_factor(text: str) -> tuple[str, float]:
    """Split ``'*nvjet*=0.5'``; a name may have an equals sign in it."""
    from streamscope.predicting.scenario import LARGEST_FACTOR

    pattern, sign, factor = text.rpartition("=")
    try:
        value = float(factor)
    except ValueError:
        sign, value = "", math.nan
    if not sign or not pattern:
        raise typer.BadParameter(f"{text!r} is not KERNEL=FACTOR, such as '*nvjet*=0.5'", param_hint="--scale")
    if not 0 < value <= LARGEST_FACTOR:
        most = f"a factor is above 0, and {LARGEST_FACTOR:,.0f} at most"
        raise typer.BadParameter(f"{text!r} is out of range: {most}; --without leaves kernels out", param_hint="--scale")
    return pattern, value
