"""Advice in words."""

from __future__ import annotations

from math import isfinite

from streamscope.advising.break_even import (
    BOTH,
    CAPTURED,
    PLAIN,
    STREAMS,
    WORTH,
    BreakEven,
    DeviceCosts,
    chain_ns,
    fewest_kernels,
    graph_pays,
    launch_bound_below_ns,
    replays_to_pay,
    second_stream_pays,
)
from streamscope.advising.forecast import Forecast
from streamscope.analysis.table import device_words
from streamscope.engine_entry import STREAM
from streamscope.words import aligned, time_text, wrapped

_ALIKE = 0.05
"""Speed-ups closer to 1 than this are told as no difference."""
BRANCH = 4
"""Kernels in each of the branches that the verdict speaks of."""
WIDTH = 120
FORECAST_HEADS = ("engine", "predicted", "against async")


def verdict(costs: DeviceCosts, forecast: Forecast | None) -> str:
    """Answer: for the program first, if there is one, then for the device in general."""
    simulated = "Simulated times, not measured. " if costs.device.simulated else ""
    own = "" if forecast is None else f"{program_words(forecast)} "
    return f"{simulated}{own}{device_sentences(costs)}"


def program_words(forecast: Forecast) -> str:
    """Say how a graph and a second stream should change a program."""
    if not forecast.kernels:
        return f"{forecast.program} launches no kernels."
    count = f"{forecast.kernels:,} kernels of {time_text(forecast.kernel_ns)}" if forecast.kernels > 1 else "one kernel"
    sentences = [f"Your {count}: {_graph_clause(forecast)}."]
    if forecast.per_branch:
        sentences.append(f"A second stream {_second_stream(forecast)}.")
    else:
        sentences.append("The dual engine has no use for a second stream here.")
    return " ".join(sentences)


def device_sentences(costs: DeviceCosts) -> str:
    """Say from which kernel length on a graph, or a second stream, pays on the device."""
    bound_ns = launch_bound_below_ns(costs)
    name, short_ns = costs.device.name, min(1000.0, max(bound_ns / 2, 100.0))
    fewest = fewest_kernels(costs, short_ns)
    spared_ns = float(chain_ns(costs, PLAIN, 100, short_ns) - chain_ns(costs, CAPTURED, 100, short_ns))
    host = (
        f"On the {name} kernels shorter than {time_text(bound_ns)} wait for the host when they are launched one by one."
        if bound_ns
        else f"On the {name} the host launches faster than the shortest kernels run."
    )
    graph = f"A graph makes a long chain at least {WORTH * 100:g} % faster {range_words(graph_pays(costs))}"
    enough = f", from {fewest} kernel{'s' if fewest > 1 else ''} on where they take {time_text(short_ns)}" if fewest else ""
    replays = replays_to_pay(costs, 100, spared_ns)
    paid = f"; capturing 100 of those costs as much as {_count(replays)} replays save" if isfinite(replays) else ""
    alone, inside = (second_stream_pays(costs, BRANCH, in_graph=in_graph) for in_graph in (False, True))
    streams = (
        f"A second stream, for two branches of {BRANCH} kernels that leave each other room, pays {range_words(alone)} "
        f"launched one by one, and {range_words(inside)} in a graph."
    )
    return f"{host} {graph}{enough}{paid}. {streams}"


def advice_text(costs: DeviceCosts, forecast: Forecast | None, most: int = WIDTH) -> str:
    """Return advice as plain text, its sentences in lines of at most so many characters."""
    own = [] if forecast is None else [*aligned([FORECAST_HEADS, *forecast_rows(forecast)]), ""]
    first, last = (wrapped(words, most) for words in (verdict(costs, forecast), basis(costs)))
    return "\n".join([device_words(costs.device), *first, "", *own, *last])


def basis(costs: DeviceCosts) -> str:
    """Name the cost model behind the advice, and how to get a better one."""
    origin = costs.model.provenance
    known = f"Predicted with the cost model of the {origin.device}, measured {origin.date[:10]}."
    return (
        known if costs.device.simulated or origin.device == costs.device.name else f"{known} `streamscope calibrate` measures this GPU's."
    )


def forecast_rows(forecast: Forecast) -> list[tuple[str, ...]]:
    """Return each engine with its predicted time and speed-up, under `FORECAST_HEADS`."""
    return [
        (engine, time_text(ns), "–" if engine == PLAIN else f"{forecast.speedup(engine):.2f}×")
        for engine, ns in forecast.predicted_ns.items()
    ]


def _graph_clause(forecast: Forecast) -> str:
    speedup = forecast.speedup(CAPTURED)
    said = f"a graph should {_run(speedup)} {PLAIN}"
    if not isfinite(forecast.capture_replays) or speedup < 1 + _ALIKE:
        return said
    return f"{said}, and {_count(forecast.capture_replays)} replays pay for its capture"


def _second_stream(forecast: Forecast) -> str:
    one_by_one = f"should {_run(forecast.speedup(STREAMS))} {PLAIN} when they are launched one by one"
    in_a_graph = f"{_run(forecast.speedup(BOTH) / forecast.speedup(CAPTURED))} one stream in a graph"
    if forecast.streams == STREAM:
        return f"{one_by_one}, and {in_a_graph}"
    return f"{one_by_one}; {forecast.streams} should {in_a_graph}"


def _run(ratio: float) -> str:
    """Return how an engine runs kernels, up to the words for whom it is compared with."""
    if abs(ratio - 1) < _ALIKE:
        return "run them as fast as"
    return f"run them {ratio:.2f}× as fast as" if ratio > 1 else f"slow them to {ratio:.2f}× the speed of"


def range_words(pays: BreakEven) -> str:
    """Say at which kernel lengths something pays."""
    if pays.never:
        return "at no kernel length"
    if pays.low_ns == 0 and not isfinite(pays.high_ns):
        return "at every kernel length"
    if pays.low_ns == 0:
        return f"for kernels of up to {time_text(pays.high_ns)}"
    if not isfinite(pays.high_ns):
        return f"for kernels of {time_text(pays.low_ns)} or more"
    return f"for kernels of {time_text(pays.low_ns)} to {time_text(pays.high_ns)}"


def _count(number: float) -> str:
    return f"{number:.1f}" if number < 10 else f"{number:,.0f}"
