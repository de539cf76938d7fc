"""What is known of captured code, live on a GPU or read from a file: nodes, the memory that they touch, and how long each takes."""

from __future__ import annotations

from dataclasses import dataclass

from streamscope.capturing.certificate import Certificate
from streamscope.capturing.memory import NodeMemory
from streamscope.devices.graph_node import GraphNode
from streamscope.errors import ProgramError
from streamscope.program.operation import Program


@dataclass
class CapturedProgram:
    """Captured code; give it to `ss.compare` or `ss.prepare` as it is.

    Attributes
    ----------
    name : str
    program : Program
        One operation for each kernel, copy and set. Its variables have no elements: each stands for what a node leaves behind, and an
        operation reads those of the nodes that it must come after (see `true_order`).
    nodes : list of GraphNode
        Kind, name, grid, block, registers and edges of each; each is the operation of that number.
    memories : list of NodeMemory
        What each node reads and writes, with the evidence.
    """

    name: str
    program: Program
    nodes: list[GraphNode]
    memories: list[NodeMemory]

    def trace(self) -> Program:
        """Return the program; it takes no arguments, since the capture holds its own memory."""
        return self.program

    def certificate(self) -> Certificate:
        """Return why the true order is right: each pair of nodes that must keep its order, with the path that keeps it.

        Each schedule of the program is checked with it before it runs.

        Examples
        --------
        You need a GPU to capture anything::

            captured = ss.capture(step, x, w)
            print(captured.certificate())
        """
        found = self.program.certificate
        assert isinstance(found, Certificate)
        return found

    def __reduce__(self) -> str:
        raise ProgramError(f"captured {self.name!r} cannot be pickled", hint="load its file in each process: ss.load_captured(path)")
