"""The memory that each node touches, from all evidence, the strongest first. The rest stays unknown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from streamscope.capturing.allocations import Allocated
from streamscope.capturing.communication import SPINS, belongs_to_collective, uses_links
from streamscope.capturing.cupy_captures import source_of
from streamscope.capturing.memory import Access, AddressRange, Evidence, NodeMemory, around, united
from streamscope.capturing.nodes import Around, LaunchableNode, Parameter, pointers_among
from streamscope.capturing.operators import Operator
from streamscope.capturing.prototypes import Role, roles_in_name, roles_in_source
from streamscope.capturing.triton_kernels import TritonKernels
from streamscope.capturing.true_order import true_order
from streamscope.devices.graph_node import NodeKind, spins_on_peers
from streamscope.order.ancestors import has, known_before
from streamscope.program.captured_graph import Edges

_OWN = r"(?:void )?at::native::(?:\(anonymous namespace\)::)?"
_OWN_KERNELS = re.compile(_OWN)
"""Kernels of PyTorch's own: they touch the tensors of their operator, whatever their arguments hold."""
_PLAIN_KERNELS = re.compile(
    _OWN + r"(?:\w*elementwise_kernel\w*|reduce_kernel|batch_norm_\w+|multi_tensor_apply_kernel|CatArrayBatchedCopy\w*)\b"
)
"""Those of them whose arguments hold all addresses, by their source: they read none from memory.

Behind the part that is used, their arguments hold old values: addresses that earlier kernels used.
"""


def node_memories(
    nodes: Sequence[LaunchableNode], operators: Iterable[Operator], allocated: Allocated, triton: TritonKernels
) -> list[NodeMemory]:
    """Return the reads and writes of each node.

    Copies and sets say it themselves. The nodes of a PyTorch operator may touch all of the operator's tensors, all that it allocated, and
    the memory at any other address in their arguments. Of other kernels, and of those of operators that are not PyTorch's own, their source
    text or prototype says it, or nothing does.

    ``operators``: those that launched nodes. A node that two of them claim is not understood.
    ``triton``: Triton's kernels of this process.
    """
    claims: dict[int, list[Operator]] = {}
    for operator in operators:
        for handle in operator.nodes:
            claims.setdefault(handle, []).append(operator)
    return [_memory(node, claims.get(node.handle, ()), allocated, triton) for node in nodes]


def workspaces_apart(
    nodes: Sequence[LaunchableNode], operators: Iterable[Operator], memories: Sequence[NodeMemory], capture: Edges, count: int
) -> dict[int, int]:
    """Return for each call of operators that shares a workspace of a library which of ``count`` others it should have.

    None, where that changes nothing. A call gets the workspace of one that it needs anyway, where there is such a one: two branches of
    products would else wait for each other, as micro-batches that were captured one behind the other.
    """
    number = {node.handle: at for at, node in enumerate(nodes)}
    users: dict[AddressRange, set[int]] = {}
    nodes_of: dict[int, list[int]] = {}
    for operator in operators:
        for at in (number[handle] for handle in operator.nodes if handle in number):
            nodes_of.setdefault(operator.call, []).append(at)
            for one in memories[at].accesses:
                if one.evidence is Evidence.POINTER and not _OWN_KERNELS.match(nodes[at].node.symbol):
                    users.setdefault((one.start, one.end), set()).add(operator.call)
    shared = united(region for region, calls in users.items() if len(calls) > 1)
    if not shared:
        return {}
    without = [replace(one, accesses=tuple(each for each in one.accesses if around(shared, each.start) is None)) for one in memories]
    order = true_order(without, capture)
    if order == true_order(memories, capture):
        return {}
    sharing = set().union(*(calls for calls in users.values() if len(calls) > 1))
    before, last, found = known_before(order), dict[int, int](), dict[int, int]()
    for call in sorted(sharing):
        # By their last nodes: a set of the workspace before them comes after nothing else.
        needed = [one for one, earlier in last.items() if has(before, max(nodes_of[call]), max(nodes_of[earlier]))]
        longest_ago = len(last) if len(last) < count else min(last, key=last.__getitem__)
        workspace = max(needed, key=last.__getitem__, default=longest_ago)
        last[workspace], found[call] = call, workspace
    return found


def _memory(node: LaunchableNode, claims: Sequence[Operator], allocated: Allocated, triton: TritonKernels) -> NodeMemory:
    if node.memory is not None:
        return node.memory
    if spins_on_peers(node.node.symbol):
        return _unknown(node, allocated, f"{node.node.name}: {SPINS}")
    if not claims:
        return _by_itself(node, allocated, triton)
    if len(claims) > 1:
        return _unknown(node, allocated, f"{claims[0].name} and {claims[1].name} both seem to have launched {node.node.name}")
    return _of_operator(node, claims[0], allocated, triton)


def _by_itself(node: LaunchableNode, allocated: Allocated, triton: TritonKernels) -> NodeMemory:
    """Return the accesses of a kernel that no operator launched, by its own evidence."""
    uses = kernel_uses(node, allocated.around, triton)
    regions = ((one, allocated.around(one.address)) for one in uses.pointers)
    accesses = tuple(Access(*region, one.reads, one.writes, one.evidence) for one, region in regions if region is not None)
    return NodeMemory(accesses, f"{node.node.name}: {uses.why_unknown}" if uses.why_unknown else "")


def _unknown(node: LaunchableNode, allocated: Allocated, why: str) -> NodeMemory:
    """Return the accesses of an opaque node: the memory at all addresses in its arguments may be written."""
    regions = dict.fromkeys(region for one in pointers_among(node.words, allocated.around) if (region := allocated.around(one)) is not None)
    return NodeMemory(tuple(Access(*one, reads=True, writes=True, evidence=Evidence.POINTER) for one in regions), why)


def _of_operator(node: LaunchableNode, operator: Operator, allocated: Allocated, triton: TritonKernels) -> NodeMemory:
    made = [allocated.made[number] for number in operator.allocated if number < len(allocated.made)]
    tensors = [
        *(Access(*region, reads=True, writes=False, evidence=Evidence.SCHEMA) for region in operator.reads),
        *(Access(*region, reads=True, writes=True, evidence=Evidence.SCHEMA) for region in operator.writes),
    ]
    accesses = (
        *tensors,
        *(Access(*one, reads=True, writes=True, evidence=Evidence.ALLOCATED) for one in made if not _written(one, operator)),
    )
    addresses, symbol = pointers_among(node.words, allocated.around), node.node.symbol
    known = united((one.start, one.end) for one in accesses)
    beside = (allocated.around(address) for address in addresses if around(known, address) is None)
    others = dict.fromkeys(region for region in beside if region is not None)
    everything = (*accesses, *(Access(*region, reads=True, writes=True, evidence=Evidence.POINTER) for region in others))
    collective = operator.communication is not None and belongs_to_collective(node.node.kind, symbol)
    if collective:
        # Events and host functions touch nothing but the order. A kernel may have its list of work elsewhere, so it has all tensors.
        everything = (*(everything if node.node.kind is NodeKind.KERNEL else ()), uses_links())
    if operator.why_unknown:
        return NodeMemory(everything, operator.why_unknown)
    if operator.allocated.stop > len(allocated.made):
        return NodeMemory(everything, f"the allocator's history does not say what {operator.name} allocated")
    if collective:
        return NodeMemory(everything)
    if not addresses and not (operator.trusted and _OWN_KERNELS.match(symbol)):
        return NodeMemory(everything, f"no address was found in the arguments of {node.node.name}")
    plain = _PLAIN_KERNELS.match(symbol) is not None
    if not operator.trusted and not plain:
        # Its code may use what no argument of the operator shows, so its kernels have to say themselves what they touch.
        return NodeMemory(everything, _by_itself(node, allocated, triton).why_unknown)
    if operator.trusted and plain:
        named = tuple(one for one in accesses if any(one.start <= address < one.end for address in addresses))
        return NodeMemory(named or everything)
    return NodeMemory(everything)


def _written(region: AddressRange, operator: Operator) -> bool:
    """Tell whether a tensor that an operator writes covers a piece of memory."""
    return any(start <= region[0] and region[1] <= end for start, end in operator.writes)


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
        return _used_somehow(node, where, "")
    roles, evidence = _roles(node, triton)
    if isinstance(roles, str):
        return _used_somehow(node, where, roles)
    if len(roles) != len(node.parameters):
        return _used_somehow(node, where, f"it has {len(node.parameters)} parameters, and its prototype {len(roles)}")
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


def _used_somehow(node: LaunchableNode, where: Around, why: str) -> KernelUses:
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
