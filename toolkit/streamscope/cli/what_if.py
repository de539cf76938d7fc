"""``streamscope what-if``: a trace under another engine, or with other kernels."""

from __future__ import annotations

from typing import Annotated

import typer

from streamscope.cli.parameters import AsJson, Scale, Without, WrongUsageError, kernel_factor
from streamscope.cli.tables import print_json, print_warnings
from streamscope.cli.terminal import output, print_sentences
from streamscope.cli.trace_files import Damaged, Gpu, TraceFile, read_trace, reading_progress
from streamscope.errors import EngineError


def what_if(
    file: TraceFile,
    engine: Annotated[
        str | None, typer.Option("--engine", metavar="NAME", help="Predict this engine; by default the trace's own.", show_default=False)
    ] = None,
    streams: Annotated[
        int | None, typer.Option("--streams", metavar="N", min=1, max=128, help="Compute streams.", show_default=False)
    ] = None,
    scale: Scale = None,
    without: Without = None,
    measured_us: Annotated[
        float | None,
        typer.Option(
            "--measured-us",
            metavar="T",
            help="Time of all that is in the file without a profiler, in µs, to compare with that.",
            show_default=False,
        ),
    ] = None,
    gpu: Gpu = None,
    damaged: Damaged = "refuse",
    *,
    waits: Annotated[
        bool,
        typer.Option("--waits/--no-waits", help="Keep waits of 30 µs or more that nothing in the trace explains; no: leave them out."),
    ] = True,
    as_json: AsJson = False,
) -> None:
    """Predict a trace under another engine, with faster kernels, or without some.

    The times are predicted on the simulated device, with the durations, costs and dependencies that the trace has.
    """
    from streamscope.predicting.prediction import predicted_from, scenario_of

    factors = [kernel_factor(text) for text in scale or ()]
    with reading_progress() as progress:
        trace = read_trace(file, gpu, damaged, progress)
        progress("predicting", 1, 1)
        try:
            scenario = scenario_of(trace, engine, streams, measured_us, waits=waits)
        except EngineError as error:
            raise WrongUsageError(error.message, hint=error.hint) from None
        for pattern, factor in factors:
            scenario = scenario.scaled(factor, pattern)
        for pattern in without or ():
            scenario = scenario.without(pattern)
        found = predicted_from(scenario)
    if as_json:
        print_json(found.to_dict())
    else:
        print_sentences(output(), str(found).partition("\n")[0], "bold", whole=True)
        print_warnings(output(), found.told)
