"""What kernels without an operator touch, by their parameters: on made-up nodes, with what their sources say."""

from __future__ import annotations

import struct

import pytest

from streamscope.capturing import evidence as module
from streamscope.capturing.evidence import KernelUses, PointerUse, kernel_uses
from streamscope.capturing.memory import Evidence, around
from streamscope.capturing.nodes import LaunchableNode, Parameter
from streamscope.capturing.prototypes import Role
from streamscope.devices.graph_node import GraphNode, NodeKind
from streamscope.program.launch import LaunchKind

REGIONS = [(0x10000, 0x20000), (0x30000, 0x30200)]
A, B = 0x10000, 0x30000


def where(address):
    return around(REGIONS, address)


class Triton:
    """Triton's kernels of a process: functions with the roles of their parameters."""

    def __init__(self, roles=None):
        self._roles = roles or {}

    def __contains__(self, function):
        return function in self._roles

    def roles(self, function, parameters):
        return self._roles[function]


@pytest.fixture
def sources(monkeypatch):
    """Sources by function, as CuPy would have compiled them."""
    known: dict[int, str] = {}
    monkeypatch.setattr(module, "source_of", known.get)
    return known


def node(*values, symbol="kernel", function=1):
    parameters = tuple(
        Parameter(8 * number, one if isinstance(one, bytes) else struct.pack("<Q", one)) for number, one in enumerate(values)
    )
    return LaunchableNode(GraphNode(NodeKind.KERNEL, symbol, symbol=symbol), LaunchKind.KERNEL, lambda stream: print, parameters, function)


def source(parameters):
    return f'extern "C" __global__ void kernel({parameters}) {{ }}'


def test_const_pointers_are_read_and_others_written(sources):
    sources[1] = source("const float* x, float* y, int n")
    found = kernel_uses(node(A + 64, B, struct.pack("<i", 3)), where, Triton())
    reads, writes = PointerUse(A + 64, True, False, Evidence.PROTOTYPE), PointerUse(B, True, True, Evidence.PROTOTYPE)
    assert found == KernelUses((reads, writes))


def test_no_address_is_no_use(sources):
    sources[1] = source("const float* x, float* y")
    assert kernel_uses(node(0, B), where, Triton()) == KernelUses((PointerUse(B, True, True, Evidence.PROTOTYPE),))


def test_an_address_of_unknown_memory(sources):
    sources[1] = source("const float* x, float* y")
    assert kernel_uses(node(0x50000, B), where, Triton()).why_unknown == "its parameter 0 leads to no memory that is known"


def test_a_number_that_is_an_address(sources):
    sources[1] = source("long long table, float* y")
    found = kernel_uses(node(A, B), where, Triton())
    assert "parameter 0 holds an address" in found.why_unknown
    assert PointerUse(A, True, True, Evidence.POINTER) in found.pointers
    assert kernel_uses(node(7, B), where, Triton()).why_unknown == ""


def test_a_structure_without_addresses_is_a_number(sources):
    sources[1] = source("Shape shape, float* y")
    assert kernel_uses(node(struct.pack("<QQ", 4, 8), B), where, Triton()).why_unknown == ""


@pytest.mark.parametrize("value", [A + 8, 0x20000])
def test_a_structure_with_an_address_may_lead_further(sources, value):
    sources[1] = source("Iterator it, float* y")
    found = kernel_uses(node(struct.pack("<QQ", 4, value), B), where, Triton())
    assert "holds an address" in found.why_unknown
    assert any(where(one.address) == REGIONS[0] and one.writes for one in found.pointers)


def test_more_parameters_than_the_prototype_has(sources):
    sources[1] = source("const float* x")
    found = kernel_uses(node(A, B), where, Triton())
    assert found.why_unknown == "it has 2 parameters, and its prototype 1"
    assert {one.address for one in found.pointers if one.writes} == {A, B}


def test_a_kernel_whose_source_nobody_has(sources):
    assert "no parameters" in kernel_uses(node(A), where, Triton()).why_unknown
    found = kernel_uses(node(A, symbol="void mine::run(float const*)"), where, Triton())
    assert "source is not known" in found.why_unknown
    assert found.pointers == (PointerUse(A, True, True, Evidence.POINTER),)


def test_iterators_of_libraries_hold_all_addresses(sources):
    symbol = "void cub::run(float const*, cub::Iterator<float*>, int)"
    found = kernel_uses(node(A, struct.pack("<QQ", 3, B), struct.pack("<i", 3), symbol=symbol), where, Triton())
    assert found == KernelUses((PointerUse(A, True, False, Evidence.PROTOTYPE), PointerUse(B, True, True, Evidence.PROTOTYPE)))


def test_numba_kernels_read_and_write_what_they_are_given(sources):
    found = kernel_uses(node(0, A, 100, B, symbol="cudapy::__main__::add[abi:v1](Array<float, 1, C>)"), where, Triton())
    assert found == KernelUses((PointerUse(A, True, True, Evidence.POINTER), PointerUse(B, True, True, Evidence.POINTER)))


def test_triton_goes_before_all_else(sources):
    sources[1] = source("float* x, float* y")
    found = kernel_uses(node(A, B), where, Triton({1: (Role.READ, Role.WRITTEN)}))
    assert found == KernelUses((PointerUse(A, True, False, Evidence.TRITON), PointerUse(B, True, True, Evidence.TRITON)))
    assert kernel_uses(node(A, B), where, Triton({1: "why"})).why_unknown == "why"
