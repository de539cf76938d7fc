"""Source of several element-wise operations in one kernel, with the bits that they have one by one.

Each operation is a function in a namespace of its own, and one function calls them in order. Values between them are rounded as
memory would round it: a ``float`` to itself, half through half, whole numbers to their width.

A compiler makes one operation, rounded once, of a product and a sum that it meets. Within an operation it did so before, and goes on;
between two it must not. An empty ``asm`` does not keep it from that: the assembler contracts too (tried with NVRTC 13.0, as were ``mov``
and a multiplication by 1). Adding -0.0 with ``.rn`` does, and changes no number: PTX promises to contract no addition with an explicit
rounding (PTX ISA, "add"). It costs one instruction, so it stands only where a product can meet a sum. It is volatile, and so it also keeps
an operation that can contract from sharing subexpressions with others, which would change how it contracts. ``-fmad=false`` would be
simpler, but an operation of a product and a sum would then have other bits than where it is alone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from streamscope.kernels.cuda import pieces
from streamscope.kernels.expression.wrapping import added
from streamscope.kernels.signature import Parameter, Signature
from streamscope.kernels.source import COMPUTE

ROUNDED, APART = pieces("fused").values()
_CALL = re.compile(r"\b(\w+)\s*\(")
_CHOOSING = frozenset({"T", "fabs", "fmax", "fmin", "maximum", "minimum"})
"""Functions that neither add nor multiply; any other may do both."""


@dataclass(frozen=True)
class FusedStep:
    """One operation in a fused kernel."""

    signature: Signature
    arguments: tuple[str, ...]
    """Names of the values that its parameters get: of the kernel's parameters, or ``v0``, ``v1``, ... for results of earlier steps. One
    that accumulates has its accumulator as a last argument."""


@dataclass(frozen=True)
class FusedSignature(Signature):
    """Value of a fused kernel: the last step's result."""

    steps: tuple[FusedStep, ...] = ()
    """In order."""
    kept: tuple[tuple[str, int], ...] = ()
    """Parameters that get another step's result, and which one's; their dtype is the same in memory as in arithmetic."""

    @property
    def updated(self) -> tuple[Parameter, ...]:
        """The parameters that are written."""
        return tuple(parameter for parameter in self.parameters if parameter.name in dict(self.kept))

    def device_functions(self) -> str:
        """Return the steps as functions, and one that calls them in order."""
        return _functions(self.parameters, self.steps, self.updated, dict(self.kept))


def fused_signature(
    name: str, parameters: Sequence[Parameter], steps: Sequence[FusedStep], kept: Sequence[tuple[str, int]] = ()
) -> FusedSignature:
    """Return the value of a fused kernel, which is the last step's result; parameters are taken as they are stored."""
    result = steps[-1].signature.result
    written = [f"new_{parameter.name}" for parameter in parameters if parameter.name in dict(kept)]
    called = ", ".join([*(parameter.name for parameter in parameters), *written])
    return FusedSignature(name, tuple(parameters), result, f"fused({called})", result, steps=tuple(steps), kept=tuple(kept))


def _functions(parameters: Sequence[Parameter], steps: Sequence[FusedStep], updated: Sequence[Parameter], kept: Mapping[str, int]) -> str:
    namespaces: dict[str, str] = {}
    for step in steps:
        namespaces.setdefault(step.signature.own_source(), f"{step.signature.name}_{len(namespaces)}")
    body = _body(parameters, steps, [namespaces[step.signature.own_source()] for step in steps])
    body = [*body, *(f"new_{parameter.name} = v{kept[parameter.name]};" for parameter in updated), f"return v{len(steps) - 1};"]
    text = "".join(f"    {line}\n" for line in body)
    taken = [f"{COMPUTE[parameter.taken]} {parameter.name}" for parameter in parameters]
    arguments = ", ".join([*taken, *(f"{COMPUTE[parameter.taken]}& new_{parameter.name}" for parameter in updated)])
    operations = "".join(f"namespace {name} {{\n{contents}}}\n" for contents, name in namespaces.items())
    fused = f"__device__ inline {COMPUTE[steps[-1].signature.result]} fused({arguments})\n{{\n{text}}}\n"
    return "".join([*[ROUNDED] * ("rounded(" in text), *[APART] * ("apart(" in text), operations, fused])


def _body(parameters: Sequence[Parameter], steps: Sequence[FusedStep], namespaces: Sequence[str]) -> list[str]:
    types = {parameter.name: COMPUTE[parameter.taken] for parameter in parameters}
    products: set[str] = set()  # Names of values that may be products when they meet a sum.
    lines = []
    for index, (step, namespace) in enumerate(zip(steps, namespaces, strict=True)):
        multiplies, adds = _multiplies(step.signature), _adds(step.signature)

        def passed(value: str, *, multiplies: bool = multiplies, adds: bool = adds) -> str:
            return f"apart({value})" if types[value] in ("float", "double") and adds and (multiplies or value in products) else value

        arguments = [passed(value) for value in step.arguments]
        kept = arguments.pop() if step.signature.accumulate else None
        value = f"{namespace}::value({', '.join(arguments)})"
        total = value if kept is None else added(step.signature.result, kept, value)
        half = step.signature.result == "float16"
        name, types[f"v{index}"] = f"v{index}", COMPUTE[step.signature.result]
        if not half and (multiplies or (not adds and not products.isdisjoint(step.arguments))):
            products.add(name)
        # The last is rounded where it is stored.
        lines.append(f"const {types[name]} {name} = {f'rounded({total})' if half and index < len(steps) - 1 else total};")
    return lines


def _multiplies(signature: Signature) -> bool:
    return _contains(signature, "[*/]")


def _adds(signature: Signature) -> bool:
    return signature.accumulate or _contains(signature, "[+-]")


def _contains(signature: Signature, pattern: str) -> bool:
    text = " ".join([signature.expression, *(value for _, value in signature.lets)])
    return bool(re.search(pattern, text)) or not _CHOOSING.issuperset(_CALL.findall(text))
