"""What a user named wrongly on the command line, and what is there instead."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from streamscope import arguments
from streamscope.errors import OutputError, StreamscopeError, WorkloadError

if TYPE_CHECKING:
    from streamscope.workloads.workload import Made


class WrongUsageError(StreamscopeError):
    """An argument names something that is not there, or has a value that it cannot have."""


def one_of(choices: Sequence[str]) -> Callable[[str], str]:
    """Return a check that an option has one of a few values."""

    def check(value: str) -> str:
        if value not in choices:
            raise typer.BadParameter(f"{value!r} is not one of {', '.join(choices)}")
        return value

    return check


def given_path(text: str) -> Path:
    """Return the path that an option names; an empty one, of a variable that is not set, would be the current folder.

    Raises
    ------
    BadParameter
        It is no path.
    """
    try:
        return arguments.given_path(text, error=OutputError)
    except OutputError as error:
        raise typer.BadParameter(f"{error.message}: {error.hint}") from None


def setting_values(settings: Sequence[str]) -> dict[str, str]:
    """Split ``name=value`` pairs.

    Raises
    ------
    BadParameter
        One is no such pair.
    """
    values = {}
    for setting in settings:
        name, sign, value = setting.partition("=")
        if not sign or not name.strip():
            raise typer.BadParameter(f"{setting!r} is not NAME=VALUE", param_hint="--set")
        values[name.strip()] = value.strip()
    return values


def built_workload(name: str, values: Mapping[str, str]) -> tuple[Made, dict[str, int]]:
    """Return a workload's program and inputs, and all its settings, those that were not given by their defaults.

    Raises
    ------
    WrongUsageError
        There is no such workload or setting, or a value is out of range.
    """
    from streamscope.workloads import workload

    try:
        found = workload(name)
        made = found.build(**values)
    except WorkloadError as error:
        raise WrongUsageError(error.message, hint=error.hint) from None
    return made, {key: int(values.get(key, setting.default)) for key, setting in found.settings.items()}
