"""What says that a node touches memory, put together: made-up nodes, operators and allocations."""

from __future__ import annotations

import struct
from dataclasses import replace
from types import SimpleNamespace

import pytest

from streamscope.capturing.allocations import Allocated
from streamscope.capturing.communication import without_links
from streamscope.capturing.evidence import node_memories, workspaces_apart
from streamscope.capturing.memory import Access, Evidence, NodeMemory, regions_of
from streamscope.capturing.nodes import LaunchableNode, Parameter, without_internals
from streamscope.capturing.operators import Operator, is_trusted
from streamscope.capturing.triton_kernels import TritonKernels
from streamscope.capturing.true_order import true_order
from streamscope.devices.graph_node import Communication, GraphNode, NodeKind
from streamscope.program.launch import LaunchKind
from streamscope.program.user_line import UserLine

BASE = 0x7F00_0000_0000
A, B, C, WORKSPACE, NEIGHBOUR = ((BASE + 4096 * n, BASE + 4096 * n + 1024) for n in range(5))


@pytest.fixture(autouse=True)
def no_sources(monkeypatch):
    """Let no kernel be one that CuPy compiled, without asking a driver."""
    monkeypatch.setattr("streamscope.capturing.evidence.source_of", lambda function: None)


class Known(Allocated):
    """Allocations that never ask a driver."""

    def around(self, address):
        return super().around(address) if BASE <= address < BASE + 2**20 else None


def kernel(handle, *words, symbol="cutlass::Kernel"):
    parameter = Parameter(0, struct.pack(f"{len(words)}Q", *words))
    return LaunchableNode(GraphNode(NodeKind.KERNEL, "k", symbol=symbol), LaunchKind.KERNEL, None, (parameter,), handle=handle)


def operator(*nodes, reads=(A,), writes=(B,), allocated=range(0), why_unknown=""):
    return Operator("aten.mm.default", "layer", UserLine("file.py:1", "x @ y"), nodes, reads, writes, allocated, why_unknown)


TRITON = TritonKernels()
ALL = Known([WORKSPACE], [A, B, C, NEIGHBOUR], [(BASE, BASE + 2**20)])


def uses(memory):
    return {(one.start, one.end): (one.reads, one.writes, one.evidence.name) for one in memory.accesses}


def test_each_node_of_an_operator_gets_all_its_tensors_found_in_its_arguments_or_not():
    one, two = node_memories([kernel(7, A[0]), kernel(8, B[0] + 64)], [operator(7, 8)], ALL, TRITON)
    assert one.understood
    assert uses(one) == uses(two) == {A: (True, False, "SCHEMA"), B: (True, True, "SCHEMA")}


def test_other_addresses_in_the_arguments_lead_to_the_whole_allocation_read_and_written():
    (memory,) = node_memories([kernel(7, A[0], 3, NEIGHBOUR[0] + 100, NEIGHBOUR[0] + 8)], [operator(7)], ALL, TRITON)
    assert uses(memory)[NEIGHBOUR] == (True, True, "POINTER")
    assert len(memory.accesses) == 3


def test_what_an_operator_allocates_belongs_to_its_nodes_even_where_no_argument_shows_it():
    (memory,) = node_memories([kernel(7, A[0])], [operator(7, allocated=range(1))], ALL, TRITON)
    assert uses(memory)[WORKSPACE] == (True, True, "ALLOCATED")


def test_an_address_between_allocations_stands_for_the_whole_pool():
    (memory,) = node_memories([kernel(7, A[1] + 8)], [operator(7)], ALL, TRITON)
    assert uses(memory)[BASE, BASE + 2**20] == (True, True, "POINTER")


def test_copies_and_sets_say_it_themselves():
    written = NodeMemory((Access(*C, False, True, Evidence.NODE),))
    node = LaunchableNode(GraphNode(NodeKind.SET, "memset"), LaunchKind.KERNEL, None, memory=written, handle=7)
    assert node_memories([node], [operator(7)], ALL, TRITON) == [written]


@pytest.mark.parametrize(
    ("node", "operators", "why"),
    [
        (kernel(7, A[0]), [], "its name"),
        (kernel(7, A[0]), [operator(8)], "its name"),
        (kernel(7, A[0]), [operator(7), operator(7)], "both"),
        (kernel(7, 1, 2), [operator(7)], "no address"),
        (kernel(7), [operator(7)], "no address"),
        (kernel(7, A[0]), [operator(7, why_unknown="it is sparse")], "it is sparse"),
        (kernel(7, A[0]), [operator(7, allocated=range(1, 2))], "history"),
    ],
)
def test_what_nothing_explains_stays_unknown(node, operators, why):
    (memory,) = node_memories([node], operators, ALL, TRITON)
    assert why in memory.why_unknown
    led_to = {one for one in (A, B, C) for word in node.words if one[0] <= word < one[1]}
    assert led_to <= set(uses(memory))
    assert all(write for _, write, evidence in uses(memory).values() if evidence == "POINTER")


def test_a_node_that_is_not_understood_may_write_what_its_arguments_lead_to():
    (memory,) = node_memories([kernel(7, 3, A[0] + 8, NEIGHBOUR[0])], [], ALL, TRITON)
    assert memory.why_unknown
    assert uses(memory) == {A: (True, True, "POINTER"), NEIGHBOUR: (True, True, "POINTER")}


@pytest.mark.parametrize(
    ("symbol", "understood"), [("cutlass::Kernel", False), ("void at::native::vectorized_elementwise_kernel<4>(int)", True)]
)
def test_of_an_operator_that_is_not_pytorchs_own_other_addresses_count_and_kernels_say_themselves(symbol, understood):
    other = replace(operator(7), trusted=False)
    (memory,) = node_memories([kernel(7, A[0], NEIGHBOUR[0], symbol=symbol)], [other], ALL, TRITON)
    assert memory.understood == understood
    assert uses(memory) == {A: (True, False, "SCHEMA"), B: (True, True, "SCHEMA"), NEIGHBOUR: (True, True, "POINTER")}
    (memory,) = node_memories([kernel(7, 1, symbol=symbol)], [other], ALL, TRITON)
    assert not memory.understood


def test_the_allocation_of_a_result_is_counted_once():
    (memory,) = node_memories([kernel(7, A[0])], [operator(7, writes=(WORKSPACE,), allocated=range(1))], ALL, TRITON)
    assert [(one.start, one.evidence.name) for one in memory.accesses] == [(A[0], "SCHEMA"), (WORKSPACE[0], "SCHEMA")]
    part = (WORKSPACE[0], WORKSPACE[1] - 8)
    (memory,) = node_memories([kernel(7, A[0])], [operator(7, writes=(part,), allocated=range(1))], ALL, TRITON)
    assert set(uses(memory)) == {A, part, WORKSPACE}


def test_kernels_of_pytorchs_own_get_all_that_they_touch():
    (memory,) = node_memories([kernel(7, 1, symbol="void at::native::fill<int>(int)")], [operator(7, reads=())], ALL, TRITON)
    assert memory.understood
    assert uses(memory) == {B: (True, True, "SCHEMA")}


ELEMENTWISE = "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>>(int)"


def test_pytorchs_elementwise_kernels_touch_what_their_arguments_name():
    one = operator(7, 8, reads=(A, C), allocated=range(1))
    first, second = node_memories(
        [kernel(7, A[0], WORKSPACE[0], symbol=ELEMENTWISE), kernel(8, C[0], symbol=ELEMENTWISE)], [one], ALL, TRITON
    )
    assert uses(first) == {A: (True, False, "SCHEMA"), WORKSPACE: (True, True, "ALLOCATED")}
    assert uses(second) == {C: (True, False, "SCHEMA")}


def test_what_an_elementwise_kernels_arguments_hold_by_chance_is_left_out():
    (memory,) = node_memories([kernel(7, A[0], NEIGHBOUR[0], symbol=ELEMENTWISE)], [operator(7)], ALL, TRITON)
    assert set(uses(memory)) == {A}


def test_other_kernels_of_the_same_operator_touch_all_since_they_may_read_addresses_from_memory():
    symbol = ELEMENTWISE.replace("vectorized_elementwise_kernel", "index_of_pointers")
    (memory,) = node_memories([kernel(7, A[0], symbol=symbol)], [operator(7, reads=(A, C))], ALL, TRITON)
    assert set(uses(memory)) == {A, B, C}


def test_an_elementwise_kernel_whose_arguments_name_nothing_touches_all():
    (memory,) = node_memories([kernel(7, 1, symbol=ELEMENTWISE)], [operator(7)], ALL, TRITON)
    assert set(uses(memory)) == {A, B}


CHAIN = ((), (0,))


def sharing(one, other, *, reads=(A, A)):
    """Return which of two calls share a workspace for nothing: each reads and writes its own, and leads to the pieces that are given."""
    nodes = [kernel(7, A[0], *one), kernel(8, A[0], *other)]
    calls = [replace(operator(7, reads=reads[:1], writes=(B,)), call=30), replace(operator(8, reads=reads[1:], writes=(C,)), call=31)]
    memories = node_memories(nodes, calls, ALL, TRITON)
    return workspaces_apart(nodes, calls, memories, CHAIN, 4)


def test_calls_that_only_share_a_workspace_are_found():
    assert sharing([NEIGHBOUR[0]], [NEIGHBOUR[0] + 8]) == {30: 0, 31: 1}


@pytest.mark.parametrize(("count", "workspaces"), [(4, [0, 0, 1, 1, 2]), (2, [0, 0, 1, 1, 0])])
def test_products_of_a_branch_have_one_workspace(count, workspaces):
    """Two branches of two products each, and one more product, captured one after the other; each sets its workspace before."""
    clears = NodeMemory((Access(*NEIGHBOUR, False, True, Evidence.NODE),))
    nodes = [replace(kernel(number, NEIGHBOUR[0]), memory=None if number % 2 else clears) for number in range(10)]
    own = [A, A, B, B, C]
    calls = [replace(operator(2 * at, 2 * at + 1, reads=(), writes=(one,)), call=30 + at) for at, one in enumerate(own)]
    chain = tuple((number - 1,) if number else () for number in range(10))
    found = workspaces_apart(nodes, calls, node_memories(nodes, calls, ALL, TRITON), chain, count)
    assert found == dict(zip(range(30, 35), workspaces, strict=True))


def test_calls_that_share_nothing_or_need_their_order_anyway_are_not():
    assert sharing([NEIGHBOUR[0]], [WORKSPACE[0]]) == {}
    assert sharing([NEIGHBOUR[0]], [NEIGHBOUR[0]], reads=(A, B)) == {}


NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
ALL_REDUCE = Communication("all_reduce", "0", (0, 1), 1024)


def collective(*nodes, reads=(), writes=(B,)):
    called = operator(*nodes, reads=reads, writes=writes)
    return replace(called, name="c10d.allreduce_.default", trusted=False, communication=ALL_REDUCE)


def test_a_collective_touches_the_tensors_that_it_was_given_and_the_links():
    """Its list of work may lie elsewhere, so no address has to be in its arguments."""
    (memory,) = node_memories([kernel(7, symbol=NCCL)], [collective(7, reads=(A,))], ALL, TRITON)
    assert memory.understood
    assert uses(memory) == {A: (True, False, "SCHEMA"), B: (True, True, "SCHEMA"), (8, 16): (True, True, "COMMUNICATOR")}
    assert without_links(memory).accesses == memory.accesses[:-1]
    assert regions_of(memory) == [A, B]  # Nobody may look for the links in memory.


def test_events_beside_a_collective_use_the_links_alone():
    nodes = [
        LaunchableNode(GraphNode(kind, kind.value), LaunchKind.KERNEL, None, handle=handle)
        for handle, kind in enumerate((NodeKind.EVENT_WAIT, NodeKind.EVENT_RECORD, NodeKind.HOST))
    ]
    for memory in node_memories(nodes, [collective(0, 1, 2)], ALL, TRITON):
        assert memory.understood
        assert uses(memory) == {(8, 16): (True, True, "COMMUNICATOR")}


def test_collectives_stay_a_chain_and_other_kernels_do_not_wait_for_them():
    nodes = [kernel(0, A[0]), kernel(1, symbol=NCCL), kernel(2, C[0]), kernel(3, symbol=NCCL)]
    calls = [operator(0, reads=(), writes=(A,)), collective(1, writes=(A,)), operator(2, reads=(), writes=(C,)), collective(3, writes=(B,))]
    assert true_order(node_memories(nodes, calls, ALL, TRITON), ((), (0,), (1,), (2,))) == ((), (0,), (), (1,))


@pytest.mark.parametrize("symbol", ["two_shot_all_reduce_kernel_inplace", "ncclSymkDevKernel_AllReduce_LL", "multimem_all_reduce_kernel"])
def test_kernels_that_spin_on_the_memory_of_peers_keep_their_place(symbol):
    (memory,) = node_memories([kernel(7, A[0], symbol=symbol)], [operator(7)], ALL, TRITON)
    assert memory.why_unknown == "k: it spins on the memory of other GPUs"


def test_copies_of_fsdp2_are_trusted_where_their_schemas_name_what_they_write():
    names = "fsdp::chunk_cat", "fsdp::split_with_sizes_copy", "fsdp::all_gather_copy_in", "aten::mm", "mine::mm"
    operators = [SimpleNamespace(_schema=SimpleNamespace(name=name)) for name in names]
    assert list(map(is_trusted, operators)) == [True, True, False, True, False]


def test_a_collective_that_no_operator_launched_is_not_understood():
    (memory,) = node_memories([kernel(7, A[0], symbol=NCCL)], [], ALL, TRITON)
    assert not memory.understood


def test_a_collective_has_no_addresses_of_its_library():
    """Ranks count there how far they have come together: to restore an old count would be to wait for ever."""
    internal = BASE + 2**30
    found = without_internals(kernel(7, internal, A[0], 3, internal + 8, symbol=NCCL), ALL.is_known)
    assert found.words == (A[0],)
    plain = kernel(7, internal, A[0])
    assert without_internals(plain, ALL.is_known) is plain
