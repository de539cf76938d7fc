"""Advice in words: the verdict, and the costs that it rests on, as text."""

from __future__ import annotations

from math import isfinite

from streamscope.advising.break_even import (
    WORTH,
    BreakEven,
    chain_ns,
    fewest_kernels,
    graph_pays,
    launch_bound_below_ns,
    replays_to_pay,
    second_stream_pays,
)
from streamscope.advising.device_costs import COSTS, DeviceCosts, Fitted
from streamscope.advising.forecast import Forecast
from streamscope.analysis.table import device_words
from streamscope.analysis.traits import STREAM
from streamscope.words import format_us, time_text, wrapped

ALIKE = 0.05
"""Speed-ups closer to 1 than this are told as no difference."""
BRANCH = 4
"""Kernels in each of the branches that the verdict speaks of."""
WIDTH = 120


def verdict(costs: DeviceCosts, forecast: Forecast | None) -> str:
    """Say what pays: for the program first, if there is one, then on the device in general."""
    simulated = "Simulated times, not measured. " if costs.device.simulated else ""
    own = "" if forecast is None else f"{program_words(costs, forecast)} "
    return f"{simulated}{own}{device_sentences(costs)}"


def program_words(costs: DeviceCosts, forecast: Forecast) -> str:
    """Say what a graph and a second stream should do to a program, and what they do."""
    if not forecast.kernels:
        return f"{forecast.program} launches no kernels."
    count = f"{forecast.kernels:,} kernels of {time_text(forecast.kernel_ns)}" if forecast.kernels > 1 else "one kernel"
    word = measured_word(costs)
    sentences = [f"Your {count}: {_graph_clause(forecast, word)}."]
    if forecast.per_branch:
        sentences.append(f"A second stream {_second_stream(forecast, word)}.")
    else:
        sentences.append("The dual engine has no use for a second stream here.")
    sentences += [f"But under {engine} a segment runs uncaptured: {why}." for engine, why in forecast.unfit.items()]
    return " ".join(sentences)


def device_sentences(costs: DeviceCosts) -> str:
    """Say from which kernel length on a graph, or a second stream, pays on the device."""
    bound_ns = launch_bound_below_ns(costs)
    name, short_ns = costs.device.name, min(1000.0, max(bound_ns / 2, 100.0))
    fewest = fewest_kernels(costs, short_ns)
    spared_ns = float(chain_ns(costs, "async", 100, short_ns) - chain_ns(costs, "graph", 100, short_ns))
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
    rows = [(words, *fitted_words(costs.fitted[name])) for name, words in COSTS.items()]
    width = max(len(words) for words, *_ in rows)
    lines = [f"{words.ljust(width)}  {value:>8} µs  {margin}" for words, value, margin in rows]
    own = [] if forecast is None else ["", *_forecast_lines(forecast, measured_word(costs))]
    first, last = (wrapped(words, most) for words in (verdict(costs, forecast), basis(costs)))
    return "\n".join([device_words(costs.device), *first, *own, "", *lines, *last])


def basis(costs: DeviceCosts) -> str:
    """Say what the costs were fitted to, and how well they fit."""
    return (
        f"Fitted by least squares to {costs.runs} {measured_word(costs)} times of small programs; "
        f"they are reproduced within {costs.residual * 100:.1f} % (root mean square)."
    )


def measured_word(costs: DeviceCosts) -> str:
    """Return what the times of a device are."""
    return "simulated" if costs.device.simulated else "measured"


def forecast_rows(forecast: Forecast, word: str) -> list[tuple[str, ...]]:
    """Return for each engine its name, the predicted time, the found one, and both speed-ups against async."""
    return [
        (
            engine,
            time_text(forecast.predicted_ns[engine]),
            time_text(forecast.makespans_ns[engine].median),
            "–" if engine == "async" else f"{forecast.predicted_speedup(engine):.2f}× predicted, {_found(forecast, engine, word)}",
        )
        for engine in forecast.predicted_ns
    ]


def _forecast_lines(forecast: Forecast, word: str) -> list[str]:
    rows = [("", "predicted", word, "against async"), *forecast_rows(forecast, word)]
    return [f"{engine:<12}{predicted:>12}{found:>12}   {against}" for engine, predicted, found, against in rows]


def _found(forecast: Forecast, engine: str, word: str) -> str:
    found = forecast.speedups[engine]
    return f"{found.median:.2f}× {word}" + (f" ({found.low:.2f} to {found.high:.2f})" if found.count > 1 else "")


def fitted_words(fitted: Fitted) -> tuple[str, str]:
    """Return a fitted cost in µs, and its margin."""
    margin = f"± {format_us(fitted.margin_ns / 1e3)}" if isfinite(fitted.margin_ns) else "not shown by these runs"
    return format_us(fitted.value_ns / 1e3), margin


def _graph_clause(forecast: Forecast, word: str) -> str:
    predicted, found = forecast.predicted_speedup("graph"), forecast.speedups["graph"].median
    said = f"a graph should {_run(predicted)} async; {word} {found:.2f}×"
    if not isfinite(forecast.capture_replays) or found < 1 + ALIKE:
        return said
    return f"{said}, and {_count(forecast.capture_replays)} replays pay for its capture"


def _second_stream(forecast: Forecast, word: str) -> str:
    alone, inside = forecast.speedups["dual"].median, forecast.speedups["graph-dual"].median / forecast.speedups["graph"].median
    alone_predicted = forecast.predicted_speedup("dual")
    inside_predicted = forecast.predicted_speedup("graph-dual") / forecast.predicted_speedup("graph")
    one_by_one = f"should {_run(alone_predicted)} async when they are launched one by one ({word} {alone:.2f}×)"
    in_a_graph = f"{_run(inside_predicted)} one stream in a graph ({word} {inside:.2f}×)"
    if forecast.streams == STREAM:
        return f"{one_by_one}, and {in_a_graph}"
    return f"{one_by_one}; {forecast.streams} should {in_a_graph}"


def _run(ratio: float) -> str:
    """Return how an engine runs kernels, up to the words for whom it is compared with."""
    if abs(ratio - 1) < ALIKE:
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
