"""Memory accesses of a captured kernel by its own parameters, where no operator of PyTorch says more."""

from __future__ import annotations

from dataclasses import dataclass

from streamscope.capturing.arguments import Around, Parameter, pointers_among
from streamscope.capturing.cupy_sources import source_of
from streamscope.capturing.memory import Evidence
from streamscope.capturing.nodes import LaunchableNode
from streamscope.capturing.prototypes import Role, roles_in_name, roles_in_source
from streamscope.capturing.triton_kernels import TritonKernels

_NUMBA = ("cudapy::", "_ZN6cudapy")
"""How the names of Numba's kernels begin. They take arrays and numbers apart, and have no variables of their own in device memory."""


@dataclass(frozen=True)
class PointerUse:
    """An address among a kernel's parameters, and the kernel's use of the memory there."""

    address: int
    reads: bool
    writes: bool
    evidence: Evidence


@dataclass(frozen=True)
class KernelUses:
    """A kernel's use of the memory at its parameters."""

    pointers: tuple[PointerUse, ...]
    why_unknown: str = ""
    """Why the kernel may touch more than that; empty where it does not."""


def kernel_uses(node: LaunchableNode, where: Around, triton: TritonKernels) -> KernelUses:
    """Return a kernel's use of the memory at its parameters.

    ``where``: ``where(address)`` returns the piece of memory around an address.
    ``triton``: Triton's kernels of this process, looked up once for all nodes of a capture.
    """
    if node.node.symbol.startswith(_NUMBA):
        return _unknown(node, where, "")
    roles, evidence = _roles(node, triton)
    if isinstance(roles, str):
        return _unknown(node, where, roles)
    if len(roles) != len(node.parameters):
        return _unknown(node, where, f"it has {len(node.parameters)} parameters, and its prototype {len(roles)}")
    uses: list[PointerUse] = []
    why_unknown = ""
    for number, (parameter, role) in enumerate(zip(node.parameters, roles, strict=True)):
        found, why = _use(parameter, role, evidence, where)
        uses += found
        why_unknown = why_unknown or (f"its parameter {number} {why}" if why else "")
    return KernelUses(tuple(uses), why_unknown)


def _roles(node: LaunchableNode, triton: TritonKernels) -> tuple[tuple[Role, ...] | str, Evidence]:
    symbol = node.node.symbol
    if node.function in triton:
        return triton.roles(node.function, len(node.parameters)), Evidence.TRITON
    source = source_of(node.function)
    if source is None:
        return roles_in_name(symbol), Evidence.PROTOTYPE
    return roles_in_source(source, symbol), Evidence.PROTOTYPE


def _unknown(node: LaunchableNode, where: Around, why: str) -> KernelUses:
    addresses = pointers_among(node.words, where)
    return KernelUses(tuple(PointerUse(one, True, True, Evidence.POINTER) for one in addresses), why)


def _use(parameter: Parameter, role: Role, evidence: Evidence, where: Around) -> tuple[list[PointerUse], str]:
    """Return the addresses in a parameter with their use, and why it may lead to more; empty if it does not."""
    if role is Role.INDEXER:
        return [], ""
    if role in (Role.READ, Role.WRITTEN):
        addresses = pointers_among(parameter.words[:1], where)  # As in arrays of CuPy's, and tensor maps.
        lost = not addresses and any(parameter.words[:1])
        uses = [PointerUse(one, True, role is Role.WRITTEN, evidence) for one in addresses]
        return uses, "leads to no memory that is known" if lost else ""
    addresses = pointers_among(parameter.words, where)
    # The end of a piece of memory may be an iterator's, which goes backwards from there.
    addresses += tuple(one - 1 for one in parameter.words if one not in addresses and where(one - 1) is not None)
    if role is Role.HOLDER:
        return [PointerUse(one, True, True, evidence) for one in addresses], ""
    uses = [PointerUse(one, True, True, Evidence.POINTER) for one in addresses]
    return uses, "holds an address, and its type does not say what for" if addresses else ""
