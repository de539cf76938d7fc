"""Copies between host and device memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

from streamscope.ops.application import Application, Attributes, Operator
from streamscope.program.launch import Array, Cost, Launch, LaunchKind
from streamscope.program.symbol import Symbol
from streamscope.program.variable import ArraySpec, Place


def _infer(specs: Sequence[ArraySpec], attributes: Attributes) -> Sequence[ArraySpec]:
    return [specs[0]]


def _reference(arrays: Sequence[Array]) -> Sequence[Array]:
    return [arrays[0].copy()]


def _builder(name: str, kind: LaunchKind) -> Callable[[Application], tuple[Launch, ...]]:
    def build(application: Application) -> tuple[Launch, ...]:
        cost = Cost(application.read_specs[0].nbytes, blocks=0, threads=0)
        return (Launch(application.operation, 0, name, kind, application.reads, application.writes, cost, _reference),)

    return build


_to_device = Operator("to_device", _infer, _builder("to_device", LaunchKind.COPY_IN), Place.HOST, Place.DEVICE)
_to_host = Operator("to_host", _infer, _builder("to_host", LaunchKind.COPY_OUT), Place.DEVICE, Place.HOST)


def to_device(x: object, *, out: object = None) -> Symbol:
    """Copy a variable from page-locked host memory to the device.

    Parameters
    ----------
    x : variable
        In host memory.
    out : variable, optional
        Where the result goes, in device memory; by default a new variable.
    """
    return cast("Symbol", _to_device(x, out=out))


def to_host(x: object, *, out: object = None) -> Symbol:
    """Copy a variable from the device to page-locked host memory.

    Parameters
    ----------
    x : variable
        In device memory.
    out : variable, optional
        Where the result goes, in host memory; by default a new variable.
    """
    return cast("Symbol", _to_host(x, out=out))
