"""The live timeline of a job: the map of ranks and steps, the ranks that are chosen at first, and the way from a cell to its collective."""

from __future__ import annotations

import base64
import json

import numpy as np
import pytest
from tests.ranks.jobs import planted

from streamscope.ranks.job import Job
from streamscope_widgets.columns import ColumnBlock
from streamscope_widgets.job_timeline import MOST_SHOWN, answer_cell, awaited_by_step, encode_ranks, first_ranks, job_groups
from streamscope_widgets.payload import SECOND_BUNDLE, as_groups, bundle_source, encode
from streamscope_widgets.tile_questions import answer
from streamscope_widgets.timeline import JobTimeline

STEPS = 12


@pytest.fixture(scope="module")
def job():
    """Forty ranks, of which rank 17 is late by 300 µs in all steps but each third."""
    made = planted(40, STEPS, slow=lambda step, at: (17, 300) if at == 1 and step % 3 else None, groups=((*range(20),), (*range(20, 40),)))
    return Job.of(made.ranks)


def column(told, block, count):
    assert told["dtype"] == "u8"
    return np.frombuffer(block, np.uint8, count, told["offset"])


class TestMap:
    def test_a_rank_that_is_late_is_waited_for_and_does_not_wait(self, job):
        waiting, awaited = job.waiting_by_step(), awaited_by_step(job)
        late = np.flatnonzero(awaited[17] > 250)
        assert len(late) >= len(job.steps) * 2 // 3 - 1
        assert (waiting[17, late] < 60).all()
        assert (waiting[:17, late] > 200).all()
        assert (waiting[20:, late] < 60).all()  # Another group of ranks.
        # What others wait for a rank is what the one that waits longest does, so sums over all ranks bound each other.
        assert (awaited.sum(axis=0) <= waiting.sum(axis=0) + 1e-6).all()

    def test_it_is_sent_as_levels(self, job):
        block = ColumnBlock()
        found = encode_ranks(job_groups(job), block)
        count = len(job.ranks) * found["steps"]
        assert found["numbers"] == list(range(40))
        assert found["late"][0][0] == 17
        assert [places for _, places in found["groups"]] == [list(range(20)), list(range(20, 40))]
        for name, exact in (("waiting", job.waiting_by_step()), ("awaited", awaited_by_step(job))):
            levels = column(found[name], block.to_bytes(), count).reshape(exact.shape)
            assert np.abs(levels / 255 * found["most"] / 1e3 - exact).max() <= found["most"] / 1e3 / 255

    def test_of_too_many_steps_neighbours_share_one(self, job, monkeypatch):
        monkeypatch.setattr("streamscope_widgets.job_timeline.MOST_CELLS", 40 * 4)
        block = ColumnBlock()
        found = encode_ranks(job_groups(job), block)
        assert found["several"] == -(-len(job.steps) // 4)
        assert found["steps"] == -(-len(job.steps) // found["several"])
        assert column(found["awaited"], block.to_bytes(), 40 * found["steps"]).reshape(40, -1)[17].min() > 200


class TestChoice:
    def test_late_ranks_and_those_that_wait_are_shown_first(self, job):
        first = first_ranks(job)
        assert len(first) == MOST_SHOWN
        assert 17 in first
        assert set(first) - {17} <= set(range(20))
        assert first_ranks(Job.of(planted(3, 4).ranks)) == [0, 1, 2]

    def test_waiting_is_known_where_the_last_rank_is_shown(self, job):
        known = (17, 3)
        (group,) = job_groups(job, known)
        facts = group.trace.collectives
        late = facts.ranks == 2
        assert late.sum() >= 2 * 2 * len(job.steps) // 3 - 2
        assert set(facts.ranks[~late].tolist()) <= {20, 0}

    def test_a_cell_leads_to_its_collective(self, job):
        step = int(awaited_by_step(job)[17].argmax())
        groups = job_groups(job, [30, 31])
        asked = answer_cell(groups, 3, step)
        assert asked["span"] == -1
        assert {3, 17} <= set(asked["numbers"])
        assert len(asked["numbers"]) == MOST_SHOWN
        (group,) = job_groups(job, asked["numbers"])
        found = answer_cell((group,), 3, step)
        spans = group.trace.spans
        assert spans.gpu[found["span"]] == 3
        assert found["start"] <= spans.start_ns[found["span"]] < spans.end_ns[found["span"]] <= found["end"]
        assert found["end"] - found["start"] > 250_000

    def test_what_cannot_be_is_refused(self, job):
        groups = job_groups(job, [0, 1])
        for question in ({"rank": 99, "step": 0}, {"rank": 0, "step": 999}, {"rank": "x"}):
            assert "refused" in answer(None, groups, {"type": "cell", **question}).header
        (other,) = as_groups([groups[0].trace])
        assert "no ranks of a job" in answer(None, (other.__class__(other.trace),), {"type": "job"}).header["refused"]


def test_a_widget_shows_other_ranks(job, monkeypatch):
    widget = job.timeline(ranks=[0, 1])
    assert isinstance(widget, JobTimeline)
    sent = []
    monkeypatch.setattr(widget, "send", lambda content, buffers: sent.append((content, buffers)))
    widget._answer(widget, {"type": "show", "view": "v", "id": "1", "numbers": [17, 3]}, [])
    assert [content["type"] for content, _ in sent] == ["spans", "answer"]
    assert widget.groups[0].ranks == (3, 17)
    widget._answer(widget, {"type": "show", "view": "v", "id": "2", "numbers": [99]}, [])
    assert "no rank 99" in sent[-1][0]["header"]["refused"]
    widget._answer(widget, {"type": "cell", "view": "v", "id": "3", "rank": 3, "step": int(awaited_by_step(job)[17].argmax())}, [])
    assert sent[-1][0]["header"]["numbers"] == [3, 17]


PAGE = """<!doctype html><html lang="en"><title>A job</title><main><h1>A job</h1><div></div></main><script type="module">
const load = (name) => import(`data:text/javascript;base64,${window[name]}`);
const [{ open, decode }, second] = await Promise.all(["timeline", "details"].map(load));
const bytes = (text) => Uint8Array.from(atob(text), (each) => each.charCodeAt(0));
window.ask = async (question) => {
  const { spans, header, block } = JSON.parse(await window.inPython(JSON.stringify(question)));
  if (spans) window.timeline.replace(decode(spans.header, bytes(spans.block)));
  return { header, block: bytes(block) };
};
const first = await window.ask({ type: "first" });
window.timeline = await open(document.querySelector("main div"), first.header, first.block, window.ask, async () => second);
</script>"""


@pytest.mark.browser
@pytest.mark.usefixtures("bundle")
def test_the_late_rank_is_found_in_the_map_and_shown(job, context, violations):
    page = context.new_page()
    groups, asked = [job_groups(job, [30, 31])], []

    def in_python(text):
        question = json.loads(text)
        asked.append(question)

        def packed(payload):
            return {"header": dict(payload.header), "block": base64.b64encode(payload.block).decode()}

        if question["type"] == "show":
            groups[0] = job_groups(job, question["numbers"])
            return json.dumps({"spans": packed(encode(groups[0])), "header": {}, "block": ""})
        return json.dumps(packed(encode(groups[0]) if question["type"] == "first" else answer(None, groups[0], question)))

    page.expose_function("inPython", in_python)
    for name, source in (("timeline", bundle_source()), ("details", bundle_source(SECOND_BUNDLE))):
        page.add_init_script(f"window.{name} = {json.dumps(base64.b64encode(source.encode()).decode())}")
    page.route("http://job.test/", lambda route: route.fulfill(body=PAGE, content_type="text/html"))
    page.goto("http://job.test/")
    canvas = page.locator(".ss-map canvas")
    canvas.wait_for()
    assert page.locator(".ss-map-told").inner_text().startswith("Rank 17 is late in ")
    page.select_option(".ss-map select", "slowest")
    canvas.focus()
    page.keyboard.press("ArrowDown")
    page.wait_for_function("() => document.querySelector('.ss-map-told').textContent.startsWith('rank 17, step 0')")
    step = int(awaited_by_step(job)[17].argmax())
    for _ in range(step):
        page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    page.wait_for_function("() => timeline.state.selection")
    cell, show, again = (question for question in asked if question["type"] in ("cell", "show"))
    assert cell == again == {"type": "cell", "rank": 17, "step": step}
    assert 17 in show["numbers"]
    spans = groups[0][0].trace.spans
    selected = page.evaluate("timeline.state.selection")
    assert spans.gpu[selected["span"]] == 17
    assert violations(page) == []
    page.close()
