"""``streamscope read``: the metrics of a trace, its time by line, module or range, or what fills its memory."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from streamscope import options
from streamscope.cli.parameters import AsJson, shared
from streamscope.cli.tables import named_table, print_json, print_table, print_warnings, show, table
from streamscope.cli.terminal import print_sentences
from streamscope.cli.trace_files import Damaged, Gpu, TraceFile, read_trace, reading_progress
from streamscope.words import counted, shortened_inside

if TYPE_CHECKING:
    from rich.console import Console

    from streamscope.analysis import CodeTimes, MemoryUse, Summary


_BY = options.Option(
    "--by",
    None,
    "Show the time by line, module or range of your code instead of the metrics; what costs most comes first.",
    "module|line|range",
    first=("module", "line", "range"),
)


_MOST_ROWS, _LONGEST_NAME = 40, 60


def read(
    file: TraceFile,
    gpu: Gpu = None,
    communication: Annotated[
        list[str] | None,
        typer.Option(
            "--communication",
            metavar="NAME",
            help="Kernels by name communicate between GPUs, as NCCL's do: '*my_ring*'. May be given again.",
        ),
    ] = None,
    by: Annotated[str | None, shared(_BY)] = None,
    damaged: Damaged = "refuse",
    *,
    memory: Annotated[bool, typer.Option("--memory", help="Show what fills the memory instead of the metrics, the largest first.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show the metrics of a trace that Streamscope or another profiler recorded, with warnings."""
    from streamscope import analysis
    from streamscope.analysis.code import most_telling

    with reading_progress() as progress:
        trace = read_trace(file, gpu, damaged, progress)
        progress("measuring", 1, 1)
        if memory:
            # What took memory is the operator or range around it.
            divided = "operation" if by == "range" else by
            return show(analysis.memory(trace, divided), _print_rows, as_json=as_json)  # type: ignore[arg-type]
        if by is not None:
            times = analysis.by_code(trace, by, communication or ())  # type: ignore[arg-type]
            return show(times, _print_rows, as_json=as_json)
        found = analysis.summary(trace, communication=communication or ())
        held = analysis.memory(trace) if len(trace.memory) else None
        costs = None if as_json else most_telling(trace, communication or ())
    if as_json:
        return print_json(found.to_dict() | {"memory": None if held is None else held.to_dict()})
    return show(found, partial(_print, costs=costs, held=held), as_json=False)


def _print(console: Console, found: Summary, costs: CodeTimes | None, held: MemoryUse | None) -> None:
    """Print the numbers, what costs most, the peak of the memory, the streams and the warnings."""
    from streamscope.analysis.summary import COUNTER_HEADS, GPU_HEADS, KERNEL_HEADS, LINK_HEADS, STREAM_HEADS
    from streamscope.trace.counters import NOTE_HEADS, note_rows

    print_sentences(console, found.title, "bold", whole=True)
    print_table(console, table(None, ((label, value) for label, value, _ in found.rows())))
    if costs is not None and costs.known:
        console.print()
        print_sentences(console, f"{costs.answer} --by {costs.by} shows all of it.", whole=True)
    if held is not None:
        console.print()
        print_sentences(console, f"{held.answer} --memory shows all of it.", whole=True)
    if found.gpus:
        console.print()
        print_table(console, table([head.removesuffix(", µs") for head in GPU_HEADS], found.gpu_rows(), title="Times in µs"))
    if found.links:
        console.print()
        print_table(console, table(LINK_HEADS, found.link_rows()))
    if found.counters:
        console.print()
        print_table(console, table(COUNTER_HEADS, found.counter_rows()))
    if found.markers:
        console.print()
        console.print(counted(found.markers, "marker"))
    if found.streams:
        console.print()
        title = f"GPU {found.gpu}, times in µs" if found.gpus else "Times in µs"
        print_table(console, table([head.removesuffix(", µs") for head in STREAM_HEADS], found.stream_rows(), title=title))
    if found.kernels:
        console.print()
        print_table(console, named_table(console, KERNEL_HEADS, (kernel.cells() for kernel in found.kernels)))
        if found.more_kernels:
            console.print(found.more_kernels)
    print_warnings(console, found.warnings)
    if found.user_notes:
        console.print()
        print_table(console, table(NOTE_HEADS, note_rows(found.user_notes), names=-1))


def _print_rows(console: Console, found: CodeTimes | MemoryUse) -> None:
    """Print the answer, the rows and the notes."""
    print_sentences(console, found.title, "bold", whole=True)
    print_sentences(console, found.answer, whole=True)
    if found.rows:
        console.print()
        cells = ((shortened_inside(name, _LONGEST_NAME), *others) for name, *others in found.table_rows(_MOST_ROWS))
        print_table(console, table(found.heads(), cells))
        if len(found.rows) > _MOST_ROWS:
            console.print("--json has all rows")
    print_warnings(console, found.notes)
