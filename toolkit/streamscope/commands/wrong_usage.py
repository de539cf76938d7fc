"""What a user named wrongly on the command line, and what is there instead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import typer

from streamscope.errors import StreamscopeError, WorkloadError

if TYPE_CHECKING:
    from streamscope.workloads import Workload


class WrongUsageError(StreamscopeError):
    """An argument names something that is not there, or has a value that it cannot have."""


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


def named_workload(name: str, values: Mapping[str, str]) -> tuple[Workload, dict[str, int]]:
    """Return a workload and all its settings, those that were not given by their defaults.

    Raises
    ------
    WrongUsageError
        There is no such workload or setting, or a value is out of range.
    """
    from streamscope.workloads import workload

    try:
        found = workload(name)
        return found, found.values(values)
    except WorkloadError as error:
        raise WrongUsageError(error.message, hint=error.hint) from None
