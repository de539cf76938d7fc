"""Captured code in a file: `save` writes it where it was captured, and `ss.load_captured` opens it anywhere, without a GPU.

A file is JSON with a digest, like files of traces and comparisons (`trace/file_checks.py`). Texts stand in one table, and nodes are rows of
numbers. No code is in it, and faults are found before anything is made of it.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from streamscope.arguments import given_path
from streamscope.capturing.captured import TOKEN, CapturedProgram, certified, program_of
from streamscope.capturing.memory import Access, CaptureOrigin, Evidence, MemoryHeld, NodeMemory, with_first_writers
from streamscope.devices.cost_model import LARGEST_BLOCK
from streamscope.devices.graph_node import Communication, GraphNode, NodeKind, kernel_name
from streamscope.devices.measured_models import model_of
from streamscope.errors import OutputError, ProgramError
from streamscope.files import written_whole
from streamscope.formats.read import is_trace
from streamscope.order.graph import path_lengths
from streamscope.program.launch import Cost, Launch, LaunchKind
from streamscope.program.operation import Operation, Program
from streamscope.renamed import unknown_attribute
from streamscope.trace.file_checks import is_text, read_content, with_digest

_SUFFIX = ".captured.json"
_VERSION = 2
"""Of files with collectives; those without have version 1, which older versions read, too."""
MOST_NODES = 20_000
_LONGEST_GAP_NS = 500.0
"""Longest gap beyond the model's: a longer replay has another cause."""
_IN_A_SENTENCE = "a saved capture has it as a sentence: print(captured.certificate())"
_MOST_PIECES = 20_000_000
"""Pieces of memory that all accesses together may consist of: to find the order takes a step for each."""

E = TypeVar("E", bound=Enum)
_Number = Annotated[int, msgspec.Meta(ge=0, le=2**62)]
_Extent = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
"""CUDA's limit of a grid, which traces hold in 32 bits."""
_Extents = tuple[_Extent, _Extent, _Extent]
_Blocks = Annotated[int, msgspec.Meta(ge=0, le=2**40)]
_Threads = Annotated[int, msgspec.Meta(ge=0, le=LARGEST_BLOCK)]
Time = Annotated[float, msgspec.Meta(ge=0, le=1e11)]


class _Access(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """A row of numbers, as is each node; texts are their numbers in the table."""

    start: _Number
    nbytes: _Number
    use: Annotated[int, msgspec.Meta(ge=1, le=3)]
    evidence: _Number


class _Node(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """A node with its memory, its launch and its operation."""

    kind: _Number
    name: _Number
    after: list[_Number]
    grid: _Extents
    block: _Extents
    registers: _Number | None
    shared_bytes: _Number | None
    nbytes: _Number
    operator: _Number
    module: _Number
    where: _Number
    source: _Number
    symbol: _Number
    launch: _Number
    cost_bytes: _Number
    blocks: _Blocks
    threads: _Threads
    per_multiprocessor: _Number
    alone_ns: Time
    why_unknown: _Number
    accesses: list[_Access]


class _Collective(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """The collective that a node belongs to, by the node's number."""

    node: _Number
    kind: str
    communicator: str
    ranks: Annotated[list[_Number], msgspec.Meta(max_length=100_000)]
    nbytes: _Number
    number: _Number


class _Stored(msgspec.Struct):
    """Content of a file."""

    version: int
    name: str
    device: str
    date: str
    texts: list[str]
    nodes: Annotated[list[_Node], msgspec.Meta(min_length=1, max_length=MOST_NODES)]
    replay_us: Time | None = None
    versions: Annotated[dict[str, str], msgspec.Meta(max_length=64)] = {}
    plain_bytes: _Number | None = None
    pieces: list[tuple[_Number, _Number]] = []
    results: list[_Number] = []
    notes: list[str] = []
    """Further notes of its certificate: for example that nobody could check the claims."""
    collectives: Annotated[list[_Collective], msgspec.Meta(max_length=MOST_NODES)] = []


def save(captured: CapturedProgram, path: str | Path) -> Path:
    """Write captured code to a file; see `CapturedProgram.save`."""
    target = given_path(path, error=OutputError)
    if not target.name.endswith(_SUFFIX):
        raise OutputError(f"cannot write {target}: its name does not end with {_SUFFIX}", hint=f"for example {target.stem}{_SUFFIX}")
    if any(launch.cost.alone_ns is None for launch in captured.program.launches()):
        raise ProgramError(f"captured {captured.name!r} cannot be saved: the durations of its nodes are unknown")
    text = json.dumps(with_digest({"captured": msgspec.to_builtins(_stored(captured))}), ensure_ascii=False, separators=(",", ":"))
    with written_whole(target) as temporary:
        temporary.write_text(text + "\n", encoding="utf-8")
    return target


@dataclass(repr=False)
class LoadedCapture(CapturedProgram):
    """Captured code that was read from a file: a program of the simulated device, with the durations that were measured.

    Attributes
    ----------
    name, program, nodes, memories
        As of `CapturedProgram`.
    device, date : str
        Where and when the durations were measured.
    replay_us : float, optional
        Duration of a replay of the capture there.
    versions : mapping of str to str
        Of Streamscope, the framework and the driver there; empty in files of older versions.
    memory : MemoryHeld, optional
        Device memory of the capture; None in files of older versions.
    results : tuple of int
        Where the results lay.
    """

    device: str
    date: str
    replay_us: float | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    memory: MemoryHeld | None = None
    results: tuple[int, ...] = ()

    def __str__(self) -> str:
        return f"{super().__str__()}; {self.bound()} (measured on {self.device})"

    __repr__ = __str__

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            raise unknown_attribute(self, name, _IN_A_SENTENCE if name == "as_called" else None)

    @property
    def capture_us(self) -> float | None:
        """Duration of a replay where the code was captured, in µs; None where that was not measured."""
        return self.replay_us

    def origin(self) -> CaptureOrigin:
        """Return place, date and versions of the capture, and its memory."""
        return CaptureOrigin(self.device, self.date, self.versions, self.memory, self.results)


def load_captured(path: str | Path) -> LoadedCapture:
    """Read a file of `CapturedProgram.save`: code that was captured on a GPU, as a program of the simulated device.

    The program has no kernels. Each operation takes as long as its kernel was measured to take alone, and holds as many multiprocessors.
    So you can compare engines, try streams, look at timelines and graphs and ask for the bound, without a GPU and without the code.
    All times are labelled as simulated, and results are not checked.

    Parameters
    ----------
    path : str or path

    Raises
    ------
    ProgramError
        There is no such file, or it is not one of ours.

    Examples
    --------
    You need a file, which a GPU made::

        captured = ss.load_captured("model.captured.json")
        print(ss.compare(captured).verdict)
    """
    source = given_path(path, error=ProgramError)
    hint = "give the file that captured.save(path) wrote"
    if is_trace(source):
        raise ProgramError(f"{source} is a trace, not captured code", hint="`streamscope read` or ss.read(path) opens it")
    try:
        content = read_content(source)
        return _loaded(msgspec.convert(content["captured"], _Stored))
    except OSError as error:
        raise ProgramError(f"cannot read {source}: {error.strerror or error}", hint=hint) from error
    except KeyError:
        raise ProgramError(f"{source} holds no captured code", hint=hint) from None
    except UnicodeDecodeError:
        raise ProgramError(f"{source} is not captured code of ours: it is not text, and so not JSON", hint=hint) from None
    except (LookupError, TypeError, ValueError, ArithmeticError, RecursionError, MemoryError) as error:
        raise ProgramError(f"{source} is not captured code of ours: {error}", hint=hint) from error


def _stored(captured: CapturedProgram) -> _Stored:
    texts: dict[str, int] = {}

    def number(text: str) -> int:
        return texts.setdefault(text, len(texts))

    parts = zip(captured.nodes, captured.memories, captured.program.operations, strict=True)
    nodes = [_stored_node(node, memory, operation, number) for node, memory, operation in parts]
    origin = captured.origin()
    held = origin.memory
    collectives = [
        _Collective(number, one.kind, one.communicator, list(one.ranks), one.nbytes, one.number)
        for number, node in enumerate(captured.nodes)
        if (one := node.communication) is not None
    ]
    return _Stored(
        version=_VERSION if collectives else 1,
        name=captured.name,
        device=origin.device,
        date=origin.date,
        texts=list(texts),
        nodes=nodes,
        replay_us=captured.capture_us,
        versions=dict(origin.versions),
        plain_bytes=None if held is None else held.plain_bytes,
        pieces=[] if held is None else [(start, end - start) for start, end in held.pieces],
        results=list(origin.results),
        notes=list(captured.certificate().notes),
        collectives=collectives,
    )


def _stored_node(node: GraphNode, memory: NodeMemory, operation: Operation, number: Callable[[str], int]) -> _Node:
    (launch,) = operation.launches
    cost = launch.cost
    return _Node(
        kind=number(node.kind.name),
        name=number(node.name),
        after=list(node.after),
        grid=node.grid,
        block=node.block,
        registers=node.registers,
        shared_bytes=node.shared_bytes,
        nbytes=node.nbytes,
        operator=number(operation.name),
        module=number(operation.label),
        where=number(operation.where),
        source=number(operation.source),
        symbol=number(node.symbol),
        launch=number(launch.kind.name),
        cost_bytes=cost.bytes,
        blocks=cost.blocks,
        threads=cost.threads,
        per_multiprocessor=cost.per_multiprocessor,
        alone_ns=float(cost.alone_ns or 0.0),
        why_unknown=number(memory.why_unknown),
        accesses=[
            _Access(one.start, one.end - one.start, one.reads + 2 * one.writes, number(one.evidence.name)) for one in memory.accesses
        ],
    )


def _loaded(stored: _Stored) -> LoadedCapture:
    """Make a program of a file's content.

    Raises
    ------
    LookupError, ValueError
        It does not fit together.
    """
    if stored.version > _VERSION:
        raise ValueError(f"it has version {stored.version}, and this Streamscope reads up to {_VERSION}: upgrade streamscope")
    if stored.version < 1:
        raise ValueError(f"it has version {stored.version}, and there is none before 1")
    versions = itertools.chain(*stored.versions.items())
    if not all(map(is_text, (*stored.texts, *stored.notes, stored.name, stored.device, stored.date, *versions))):
        raise ValueError("a string in it is too long, or not valid Unicode")
    _check_texts(stored)
    if any(one.node >= len(stored.nodes) for one in stored.collectives):
        raise ValueError("a collective belongs to a node that is not there")
    if not all(is_text(text) for one in stored.collectives for text in (one.kind, one.communicator)):
        raise ValueError("the name of a collective is too long, or not valid Unicode")
    communications = {
        one.node: Communication(one.kind, one.communicator, tuple(one.ranks), one.nbytes, one.number) for one in stored.collectives
    }
    nodes, memories = [], []
    for number, row in enumerate(stored.nodes):
        if any(earlier >= number for earlier in row.after):
            raise ValueError(f"node {number} comes after a later one")
        nodes.append(replace(_node(number, row, stored.texts), communication=communications.get(number)))
        memories.append(_memory(row, stored.texts))
    _check_pieces(memories)
    gap_ns = _longer_gap_ns(stored)
    costs = [
        Cost(row.cost_bytes, 0, row.blocks, row.threads, 0, None, None, row.alone_ns, row.per_multiprocessor, gap_ns)
        for row in stored.nodes
    ]
    kinds = [_named(LaunchKind, stored.texts[row.launch]) for row in stored.nodes]
    sources = [stored.texts[row.source] for row in stored.nodes]
    program = without_kernels(stored.name, nodes, memories, costs, kinds, sources, model_of(stored.device).multiprocessors, stored.notes)
    pieces = tuple(sorted((start, start + nbytes) for start, nbytes in stored.pieces))
    if any(end > start for (_, end), (start, _) in itertools.pairwise(pieces)):
        raise ValueError("pieces of memory that the capture held overlap")
    program = replace(program, measured_on=stored.device, held=tuple(with_first_writers(pieces, memories)))
    held = None if stored.plain_bytes is None else MemoryHeld(stored.plain_bytes, pieces)
    where = (stored.device, stored.date, stored.replay_us, stored.versions, held, tuple(stored.results))
    return LoadedCapture(stored.name, program, nodes, memories, *where)


def _longer_gap_ns(stored: _Stored) -> float:
    """Return by how much the gaps of a replay are longer than the model's, as the replay of the capture shows it.

    On an H200 they are 0.2 µs in some graphs and 0.35 in others, the same between all nodes of a graph.
    """
    if stored.replay_us is None:
        return 0.0
    model = model_of(stored.device)
    after = [row.after for row in stored.nodes]
    ends_ns = path_lengths([row.alone_ns for row in stored.nodes], after)
    # Of paths that are as long, the one with the most nodes.
    last = [[one for one in earlier if ends_ns[one] == max(ends_ns[other] for other in earlier)] for earlier in after]
    path_ns, count = max(zip(ends_ns, map(int, path_lengths([1] * len(last), last)), strict=True))
    gaps_ns = 1e3 * stored.replay_us - model.event_pair_empty_ns - model.graph_launch_latency_ns - path_ns
    return min(max(gaps_ns / (count - 1) - model.graph_node_gap_ns, 0.0), _LONGEST_GAP_NS) if count > 1 else 0.0


def without_kernels(
    name: str,
    nodes: Sequence[GraphNode],
    memories: Sequence[NodeMemory],
    costs: Sequence[Cost],
    kinds: Sequence[LaunchKind],
    sources: Sequence[str],
    multiprocessors: int,
    notes: Sequence[str] = (),
) -> Program:
    """Return a program of captured nodes without their kernels: for each node its memory, cost, kind and the text of the user's line."""

    def launch(number: int, after: tuple[int, ...]) -> Launch:
        return Launch(number, 0, nodes[number].name, kinds[number], after, (number,), costs[number], _left)

    return program_of(certified(name, nodes, memories, multiprocessors, notes), launch, sources)


def _node(number: int, row: _Node, texts: Sequence[str]) -> GraphNode:
    kind, name, operator, module, where, symbol = (
        texts[each] for each in (row.kind, row.name, row.operator, row.module, row.where, row.symbol)
    )
    after = tuple(dict.fromkeys(row.after))
    name = kernel_name(symbol) if symbol else name  # Older files have shorter names, such as "Kernel".
    return GraphNode(
        _named(NodeKind, kind), name, after, row.grid, row.block, row.registers, row.shared_bytes, row.nbytes,
        operation=number, operator=operator, where=where, symbol=symbol, module=module,
    )  # fmt: skip


def _memory(row: _Node, texts: Sequence[str]) -> NodeMemory:
    accesses = (
        Access(one.start, one.start + one.nbytes, bool(one.use & 1), bool(one.use & 2), _named(Evidence, texts[one.evidence]))
        for one in row.accesses
    )
    return NodeMemory(tuple(accesses), texts[row.why_unknown])


def _check_texts(stored: _Stored) -> None:
    """Refuse numbers of texts that are not in the table."""
    for number, row in enumerate(stored.nodes):
        used = (row.kind, row.name, row.operator, row.module, row.where, row.source, row.symbol, row.launch, row.why_unknown)
        if (last := max(*used, *(one.evidence for one in row.accesses))) >= len(stored.texts):
            raise ValueError(f"node {number} has text {last}, and the last of the table is {len(stored.texts) - 1}")


def _named(kind: type[E], name: str) -> E:
    try:
        return kind[name]
    except KeyError:
        raise ValueError(f"{name!r:.40} is not a {kind.__name__}") from None


def _check_pieces(memories: Sequence[NodeMemory]) -> None:
    """Refuse accesses that consist of too many pieces: a file that describes them is short, and finding the order would take hours."""
    accesses = [one for memory in memories for one in memory.accesses]
    starts, ends = (np.array(column, np.uint64) for column in ([one.start for one in accesses], [one.end for one in accesses]))
    cuts = np.unique(np.concatenate((starts, ends)))
    pieces = int((np.searchsorted(cuts, ends) - np.searchsorted(cuts, starts)).sum())
    if pieces > _MOST_PIECES:
        raise ValueError(f"its accesses consist of {pieces:,} pieces of memory, more than the {_MOST_PIECES:,} that are read")


def _left(arrays: Sequence[npt.NDArray[Any]]) -> list[npt.NDArray[Any]]:
    """Return a node's output for its successors: an array without elements."""
    return [np.zeros(TOKEN.shape, TOKEN.dtype)]
