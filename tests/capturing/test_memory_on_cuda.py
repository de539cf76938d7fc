"""The memory of captured PyTorch and CuPy code: who launched each node, and that the true order gives the same results."""

from __future__ import annotations

import threading

import pytest
from tests.capturing.test_orders_on_cuda import runs_right

import streamscope as ss
from streamscope.capturing.memory import Evidence
from streamscope.errors import EngineError

pytestmark = pytest.mark.gpu


def before(captured):
    """Return for each node of a captured program all that must come before it."""
    found = []
    for operation in captured.program.operations:
        found.append(set(operation.reads).union(*(found[earlier] for earlier in operation.reads)))
    return found


def assert_equal_under_all_engines(captured):
    for name in ("async", "dual", "graph", "graph-dual"):
        prepared = ss.prepare(captured.trace(), engine=name, device=ss.open_device("cuda"))
        runs_right(captured, prepared)


def branches(torch, count, *, layers=1, compiled=False):
    """Return a model of branches that share nothing but their input, and an input."""

    class Branches(torch.nn.Module):
        def __init__(self):
            super().__init__()
            pairs = [[(torch.nn.Linear(64, 64), torch.nn.Tanh()) for _ in range(layers)] for _ in range(count)]
            self.branch = torch.nn.ModuleList(torch.nn.Sequential(*(one for pair in each for one in pair)) for each in pairs)

        def forward(self, x):
            return torch.cat([branch(x) for branch in self.branch], 1)

    model = Branches().cuda().eval()
    call = torch.compile(model) if compiled else model

    def function(x):
        with torch.no_grad():
            return call(x)

    return function, torch.randn(8, 64, device="cuda")


def test_branches_of_a_network_need_no_order_among_each_other_and_nodes_know_their_module(torch):
    function, x = branches(torch, 4)
    captured = ss.capture(function, x)
    assert all(memory.understood for memory in captured.memories)
    earlier = before(captured)
    tanhs = [number for number, node in enumerate(captured.nodes) if node.operator == "aten.tanh.default"]
    assert [captured.nodes[number].module for number in tanhs] == [f"branch.{number}.1" for number in range(4)]
    assert not any(one in earlier[other] for one in tanhs for other in tanhs)
    assert all(number in earlier[-1] for number in tanhs)
    assert all(node.where.startswith("test_memory_on_cuda.py:") for node in captured.nodes)
    assert {operation.source for operation in captured.program.operations} == {"return torch.cat([branch(x) for branch in self.branch], 1)"}
    assert_equal_under_all_engines(captured)


def test_without_memory_to_spare_branches_wait_for_each_other(torch):
    function, x = branches(torch, 8, layers=4)
    free, tight = ss.capture(function, x), ss.capture(function, x, memory_limit=1)
    assert tight.memory.held_bytes < free.memory.held_bytes
    assert sum(map(len, before(tight))) > sum(map(len, before(free)))
    assert_equal_under_all_engines(tight)


def test_nodes_of_the_backward_pass_belong_to_operators_too(torch):
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU(), torch.nn.Conv2d(8, 4, 3)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)

    def step(x):
        optimizer.zero_grad(set_to_none=True)
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    captured = ss.capture(step, torch.randn(2, 3, 16, 16, device="cuda"))
    assert all(memory.understood for memory in captured.memories)
    modules = {node.module for node in captured.nodes if "backward" in node.operator}
    assert {"0", "1", "2", "3"} <= modules
    # The gradients of a layer's weights and of its input need no order.
    last = [
        number for number, node in enumerate(captured.nodes) if node.operator == "aten.convolution_backward.default" and node.module == "3"
    ]
    earlier = before(captured)
    assert any(one not in earlier[other] for one in last for other in last if one < other)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # PyTorch's own, where it compiles
@pytest.mark.filterwarnings("ignore:TensorFloat32")  # PyTorch's advice to round more
def test_a_function_compiled_by_pytorch_runs_compiled_while_it_is_captured(torch):
    function, x = branches(torch, 2, compiled=True)
    function(x)
    captured = ss.capture(function, x)
    assert any(node.name.startswith("triton_") for node in captured.nodes)
    assert not any(node.operator == "aten.tanh.default" for node in captured.nodes)
    assert_equal_under_all_engines(captured)


def test_products_that_only_share_a_workspace_get_workspaces_of_their_own(torch):
    weights = [torch.randn(2048, 32, device="cuda") for _ in range(4)]
    x = torch.randn(16, 2048, device="cuda")
    captured = ss.capture(lambda x: tuple(x @ one for one in weights), x)
    earlier = before(captured)
    assert sum(not one for one in earlier) == 4
    assert_equal_under_all_engines(captured)


def test_kernels_of_cupy_say_what_they_touch(cupy):
    def function(x):
        return [cupy.tanh(x * factor) for factor in (1.0, 2.0, 3.0)]

    captured = ss.capture(function, cupy.linspace(-1, 1, 1000, dtype=cupy.float32))
    assert all(memory.understood for memory in captured.memories)
    assert {one.evidence for memory in captured.memories for one in memory.accesses} == {Evidence.PROTOTYPE}
    assert max(map(len, before(captured))) == 1
    assert_equal_under_all_engines(captured)


def test_a_function_that_fails_leaves_the_device_as_it_was(torch):
    def failing(x):
        if torch.cuda.is_current_stream_capturing():
            raise ValueError("on purpose")
        return x * 2

    x = torch.ones(10, device="cuda")
    with pytest.raises(EngineError, match="on purpose"):
        ss.capture(failing, x)
    assert not torch._C._cuda_isHistoryEnabled()
    assert float((x * 2).sum()) == 20.0


def test_what_a_second_thread_launches_while_an_operator_runs_is_not_explained_by_that(torch):
    """An operator of the user's own gives the other thread the time; PyTorch's own let go of Python's lock, too."""
    go, done, stream = threading.Event(), threading.Event(), []
    counter = torch.zeros(64, device="cuda")

    @torch.library.custom_op("streamscope_tests::interrupted", mutates_args=(), schema="(Tensor x) -> Tensor")
    def interrupted(x):
        stream[:] = [torch.cuda.current_stream()]
        go.set()
        assert done.wait(30)
        done.clear()
        return x + 1

    def other():
        while go.wait():
            go.clear()
            if not stream:
                return
            with torch.cuda.stream(stream[0]):
                counter.mul_(2).add_(1)
            done.set()

    thread = threading.Thread(target=other, daemon=True)
    thread.start()
    try:
        captured = ss.capture(lambda x: interrupted(x) * 3, torch.randn(64, device="cuda"))
    finally:
        stream.clear()
        go.set()
        thread.join(30)
    whys = [memory.why_unknown for memory in captured.memories]
    assert len(whys) == 4
    assert all("another thread" in why for why in whys[:3])
    assert_equal_under_all_engines(captured)


@pytest.mark.parametrize("trains", [False, True])
def test_workspaces_of_products_stay_the_captures_own_when_pytorch_clears_its(torch, trains):
    """As `torch.compile(mode="reduce-overhead")` does; products of few rows and a long inner extent use them."""
    x, w = torch.randn(8, 8192, device="cuda"), torch.randn(8192, 64, device="cuda", requires_grad=trains)

    def function(x):
        y = x @ w + (x * 2) @ w
        if not trains:
            return y.detach()
        (gradient,) = torch.autograd.grad(y.sum(), w)
        return y.detach(), gradient @ torch.ones(64, 8, device="cuda")

    captured = ss.capture(function, x)
    prepared = ss.prepare(captured, engine="graph", device="cuda", progress=False)
    torch._C._cuda_clearCublasWorkspaces()
    torch.cuda.empty_cache()
    others = [torch.full((size,), 7.0, device="cuda") for size in [1 << 18] * 100 + [1 << 20] * 40 + [1 << 23] * 8]
    runs_right(captured, prepared)
    assert all(bool((one == 7).all()) for one in others)
