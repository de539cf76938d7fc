"""Engines: how a program's operations are issued."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from streamscope.arguments import shown
from streamscope.engine_entry import ENGINES
from streamscope.errors import EngineError


def engine_names(names: Sequence[str] | str | None = None) -> tuple[str, ...]:
    """Check names of engines (a sequence, or one string with commas) and return them, each once; None is all of them."""
    if names is None:
        return tuple(ENGINES)
    hint = f"choose from {', '.join(ENGINES)}"
    if not isinstance(names, Iterable):
        raise EngineError(f"{shown(names)} names no engine", hint=hint)
    listed = names.split(",") if isinstance(names, str) else list(names)
    for name in listed:
        if not isinstance(name, str):
            raise EngineError(f"{shown(name)} is not the name of an engine", hint=hint)
    chosen = tuple(dict.fromkeys(name.strip() for name in listed if name.strip()))
    for name in chosen:
        if name not in ENGINES:
            raise EngineError(f"unknown engine {name!r}", hint=hint)
    if not chosen:
        raise EngineError("no engine was named", hint=hint)
    return chosen
