"""Programs as `ss.capture` makes them, of nodes that nothing can run."""

from __future__ import annotations

import numpy as np

from streamscope.capturing.certificate import Certificate
from streamscope.capturing.true_order import true_order
from streamscope.devices.graph_node import GraphNode, NodeKind
from streamscope.program.launch import Cost, Launch, LaunchKind
from streamscope.program.operation import Operation, Program, Variable
from streamscope.program.variable import ArraySpec, MemoryPlace

TOKEN = ArraySpec((0,), np.dtype(np.uint8))


def captured(memories, edges, kinds=None):
    """Return a program as `ss.capture` makes it: an operation for each node, which reads the tokens of those that it must come after."""
    order = true_order(memories, edges)
    nodes = [GraphNode(NodeKind.KERNEL, "kernel", after) for after in edges]
    operations = []
    for number, before in enumerate(order):
        kind = kinds[number] if kinds else LaunchKind.KERNEL
        launch = Launch(number, 0, "kernel", kind, before, (number,), Cost(0), None, None)
        operations.append(Operation(number, "kernel", before, (number,), {}, "model.py:7", (launch,)))
    variables = tuple(Variable(number, "kernel", TOKEN, MemoryPlace.DEVICE) for number in range(len(edges)))
    certificate = Certificate("captured", nodes, memories, order)
    return Program("captured", variables, tuple(operations), (), (), captured=edges, certificate=certificate)
