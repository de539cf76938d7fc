"""The explorer's question, answer and reason, over all positions of all knobs, against the makespans themselves."""

import random
import re
from collections import Counter

import pytest
from tests.combinations import THOROUGH

from streamscope.comparing.preview import Preview
from streamscope.engine_entry import ENGINES
from streamscope.errors import ProgramError
from streamscope.words import percent, time_text
from streamscope.workloads import WORKLOADS
from streamscope_widgets.exploring.controls import STREAMS
from streamscope_widgets.exploring.explorer import compared_at_first
from streamscope_widgets.exploring.subjects import FLOATS, ReadyProgram
from streamscope_widgets.exploring.words import OF_STREAMS, answer, runs_in_a_row

ALLOWED = (None, *STREAMS)
SHORT = {
    "lstm": {"layers": 1, "training": 0},
    "resnet50-v2": {"depth": 1, "training": 0},
    "transformer": {"layers": 1, "training": 0},
}
"""Of whole networks, so that they are traced at once."""


def positions(subject):
    """Yield settings, dtype and engines so that every sixth position of each knob comes up, beside random ones of the others."""
    draw = random.Random(subject.name)
    columns = [draw.sample(knob.values, len(knob.values)) for knob in subject.knobs]
    rows = range(max(map(len, columns)))
    for turn, row in enumerate(rows if THOROUGH else rows[1::6], len(subject.name)):
        values = {knob.name: column[row % len(column)] for knob, column in zip(subject.knobs, columns, strict=True)}
        values |= {} if THOROUGH else SHORT.get(subject.name, {})
        engines = compared_at_first() if draw.random() < 0.3 else tuple(draw.sample(tuple(ENGINES), draw.randint(1, 4)))
        yield values, (None, *FLOATS)[turn % 4], engines, ALLOWED[turn % len(ALLOWED)]


def told(quick_us, slow_us):
    """How many times as fast, as a sentence says it."""
    ratio = slow_us / quick_us
    return f"{ratio:.1f}× faster" if ratio >= 1.495 else f"{(ratio - 1) * 100:.0f} % faster"


def check(comparison, streams, in_a_row):
    said = answer(comparison, streams, in_a_row=in_a_row)
    text = f"{said.question} {said.sentence} {said.because}"
    times = {engine: run.metrics.makespan_us for engine, run in comparison.items()}
    used = {engine: run.trace.info.plan["streams"] for engine, run in comparison.items()}
    pairs = [(engine, base) for engine, base in OF_STREAMS if {engine, base} <= set(times)]
    paid = [engine for engine, base in pairs if times[engine] <= 0.99 * times[base]]
    best = min(times.values())
    fastest = {engine for engine, time in times.items() if best > 0.99 * time}
    if any(run.metrics.communication_us for run in comparison.values()):
        return check_communication(said, comparison, fastest)
    if len(times) == 1:
        return "one engine"
    if not fastest >= set(times):
        named = re.search(r"Fastest: ([^,.]*(?:, [a-z-]+)* and [a-z-]+|[a-z-]+)", text)[1]
        assert set(re.split(r", | and ", named)) == fastest, text
    if not pairs:
        assert said.question == "Which engine suits it?"
        return "no pair"
    if {"async", "graph"} <= set(times):
        gain = told(times["graph"], times["async"]) if times["graph"] <= 0.99 * times["async"] else ""
        assert re.search("CUDA graph makes it " + re.escape(gain), text, re.IGNORECASE), text
    elif "graph-dual" in times and "graph" not in times and "async" in times and times["graph-dual"] == best <= 0.99 * times["async"]:
        assert f"Under graph-dual it is {told(best, times['async'])} than under async." in said.because or streams == 1, text
    if streams == 1:
        assert said.question == "What pays on one stream?"
        return "one stream"
    check_question(said, streams, used, pairs)
    assert said.sentence.startswith(
        "No" if not paid else "Yes" if len(paid) == len(pairs) else "Only inside" if paid == ["graph-dual"] else "Only without"
    ), text
    for engine, base in pairs:
        if engine in paid:
            assert told(times[engine], times[base]) in said.sentence, text
    check_reason(said, comparison, paid)
    return said.sentence.partition(" ")[0]


def check_communication(said, comparison, fastest):
    """The answer is about the fastest engine, with the hidden share and the exposed time that the metrics have."""
    assert said.question == "Does communication hide here?"
    engine, metrics = next((name, run.metrics) for name, run in comparison.items() if f"under {name}, " in said.sentence)
    assert engine in fastest
    share, answered = metrics.hidden_us / metrics.communication_us, said.sentence.partition(":")[0]
    assert answered == ("No" if share < 0.01 else "Yes" if share > 0.99 else "In part"), said
    if answered == "In part":
        assert f"{percent(share)} of {time_text(metrics.communication_us * 1e3)} is hidden" in said.sentence
        assert f"and {time_text(metrics.exposed_us * 1e3)} is exposed." in said.sentence
    return answered


def check_question(said, streams, used, pairs):
    """The answer is about as many streams as the question, or says how many of them are used."""
    counts = {used[engine] for engine, _ in pairs}
    if streams is not None:
        assert said.question == ("Does a second stream pay here?" if streams == 2 else f"Do {streams} streams pay here?")
    for number in map(int, re.findall(r"the (\d+) that it uses", said.sentence)):
        assert number in counts
        assert number < streams
    for number in map(int, re.findall(r"(\d+) streams", said.sentence)):
        assert number in counts
        assert streams in (None, number)
    if "a second stream" in said.sentence:
        assert 2 in counts
        assert streams in (None, 2)
    assert ("one of them" in said.sentence or "one stream" in said.sentence) == (1 in counts)


def check_reason(said, comparison, paid):
    """What gains runs something side by side, with the share that the metrics have; what needs the operation before gains nothing."""
    alone = re.search("needs the result of the one before|There is one kernel|No kernel could begin earlier", said.because)
    assert not (paid and alone)
    if paid:
        metrics = comparison[paid[-1]].metrics
        assert said.because.startswith(f"Under {paid[-1]}, "), said
        shares = re.findall(r"(kernels run at once|beside kernels|copies run at once|beside the device) for ([\d.]+) %", said.because)
        assert shares
        for what, share in shares:
            assert float(share) >= 1
            known = {
                "kernels run at once": metrics.overlap,
                "beside kernels": metrics.copy_overlap,
                "beside the device": metrics.host_overlap,
            }
            assert what == "copies run at once" or float(share) == pytest.approx(100 * known[what], abs=0.51)


@pytest.mark.parametrize("name", WORKLOADS)
def test_question_answer_and_reason_belong_together_wherever_the_knobs_are(name):
    subject, seen = ReadyProgram(WORKLOADS[name]), Counter()
    for values, dtype, engines, streams in positions(subject):
        try:
            program = subject.outline(values, dtype)
        except ProgramError:
            assert dtype is not None  # A kernel of another dtype may not exist.
            program = subject.outline(values, None)
        seen[check(Preview(program).comparison(engines, streams=streams), streams, runs_in_a_row(program))] += 1
    assert len(seen) > 1  # more than one kind of question came up
