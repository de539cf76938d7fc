"""The extension in a real JupyterLab: double clicks open traces and comparisons, the launcher opens the explorer; no other file is read."""

from __future__ import annotations

import gzip
import json
import shutil
import socket
import time
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import numpy as np
import pytest
from tests.widgets.test_lab_document import two_gpus

import streamscope as ss

pytestmark = [pytest.mark.browser, pytest.mark.usefixtures("bundle")]

HOSTILE = "<img src=x onerror=alert(1)>"
TIMELINE = "[...(jupyterapp.shell.currentWidget?.node.querySelectorAll('*') ?? [])].map((part) => part.timeline).find(Boolean)"
SHOWN = ".jp-Document:not(.lm-mod-hidden) .ss-file"


@pytest.fixture(scope="module")
def folder(lab, repository):
    """JupyterLab's folder with a trace, a comparison, and what may not be read."""
    home = lab.folder / "files"
    home.mkdir()
    x = np.ones((2, 8, 8), np.float32)

    def product(x, w):
        return x @ w

    product.__name__ = HOSTILE
    runs = ss.compare(product, *x, engines="async,graph", device="simulated", progress=False)
    runs.save(home / "saved")
    trace = runs["graph"].trace
    for path in (home / "graph.parquet", home / ".hidden.parquet", lab.folder.parent / "outside.parquet"):
        trace.to_parquet(path)
    runs["async"].trace.to_parquet(home / "twice.parquet")
    (home / "broken.parquet").write_text(f"PAR1{HOSTILE}")
    (home / "notes.txt").write_text("mine")
    (home / Path(__file__).name).write_text("\n" * 200)
    kineto = gzip.decompress((repository / "tests/data/kineto/streams_graph.json.gz").read_bytes())
    kineto = kineto.replace(b'"traceEvents": [', b'"traceEvents": [{"ph": "X", "cat": "mine"},', 1)
    (home / "packed.pt.trace.json.gz").write_bytes(gzip.compress(kineto))
    (home / "step.pt.trace.json").write_bytes(kineto)
    (home / "plain.json").write_bytes(kineto)
    shutil.copy(repository / "notebooks/recorded/captured/mixture_of_experts.captured.json", home / "mine.captured.json")
    (home / "settings.json").write_text('{"mine": 1}')
    two_gpus(home / "two.pt.trace.json")
    shutil.copytree(repository / "tests/data/ranks/2xH100/dp-graph-augment", home / "ranks")
    return home


@pytest.fixture(scope="module")
def page(lab_page, lab, folder):
    page = lab_page
    page.complaints[:], page.read, page.folder = [], [], folder

    def note(response):
        page.read += [response] if "/api/contents/files/" in response.url else []

    page.on("response", note)
    page.evaluate("jupyterapp.commands.execute('application:close-all')")
    page.wait_for_selector(".jp-LauncherCard", timeout=60_000)
    page.evaluate("jupyterapp.commands.execute('filebrowser:go-to-path', { path: 'files' })")
    page.wait_for_selector(item("graph.parquet"))
    yield page
    page.remove_listener("response", note)
    page.evaluate("jupyterapp.commands.execute('apputils:change-theme', { theme: 'JupyterLab Light' })")
    page.evaluate("[...jupyterapp.shell.widgets('main')].forEach((widget) => widget.dispose())")  # Nobody asks whether to save them.


def item(name):
    return f".jp-DirListing-item:has-text('{name}')"


def test_a_double_click_on_a_trace_shows_its_timeline(page):
    page.locator(item("graph.parquet")).dblclick()
    page.wait_for_function(f"{TIMELINE}?.layout")
    assert page.evaluate(f"{TIMELINE}.model.groups.map((group) => group.label)") == ["graph"]
    assert page.locator(SHOWN).inner_text().startswith(f"{HOSTILE} · graph · simulated NVIDIA H200")
    page.locator(f"{SHOWN} button", has_text="critical path").click()
    page.wait_for_function(f"{TIMELINE}.model.groups[0].path")
    # Below stand the tables of the report, which headings sort.
    tables = page.locator(f"{SHOWN} > section")
    assert tables.locator("h2").all_inner_texts() == ["Lines that cost most", "What held the peak of the memory"]
    tables.get_by_role("button", name="kernels").click()
    assert tables.locator("th[aria-sort=descending]").all_inner_texts() == ["kernels"]
    # The file itself does not pass through the browser.
    sizes = [len(response.body()) for response in page.read if "graph.parquet" in response.url]
    assert sizes
    assert max(sizes) < 2000


def test_a_click_on_a_place_opens_the_file_at_its_line(page):
    """The trace was made here, by the product above; the file beside it has this name."""
    line = page.evaluate(f"{TIMELINE}.model.texts.find((text) => text.startsWith('test_lab_extension.py:')).split(':')[1]")
    page.locator(f"{SHOWN} .ss-overlay").press("n")
    place = page.locator(f"{SHOWN} .ss-panel .ss-place")
    assert place.inner_text() == f"test_lab_extension.py:{line}"
    place.click()
    page.wait_for_function("jupyterapp.shell.currentWidget?.content.editor?.getCursorPosition().line > 0")
    assert page.evaluate("jupyterapp.shell.currentWidget.content.editor.getCursorPosition().line + 1") == int(line)
    page.evaluate("jupyterapp.commands.execute('application:close')")


def test_a_double_click_on_a_comparison_shows_all_engines_and_the_verdict_in_the_theme(page):
    page.locator(item("saved")).dblclick()
    page.locator(item("comparison.json")).dblclick()
    page.wait_for_function(f"{TIMELINE}?.model?.groups.length === 2")
    assert "Simulated times (simulated NVIDIA H200), not measured." in page.locator(f"{SHOWN} > p").inner_text()
    assert not page.evaluate(f"{TIMELINE}.root.matches('.ss-dark')")
    page.evaluate("jupyterapp.commands.execute('apputils:change-theme', { theme: 'JupyterLab Dark' })")
    page.wait_for_function(f"{TIMELINE}.root.matches('.ss-dark')")


def test_a_file_that_is_written_again_is_drawn_again_and_an_extension_of_another_build_is_told(page, folder):
    runs = ss.compare(lambda x: x + x, np.ones(4, np.float32), engines="sync,async,dual", device="simulated", progress=False)
    runs.save(folder / "saved")
    assert "another build" not in page.locator(SHOWN).inner_text()
    own = page.evaluate("document.body.dataset.streamscope")
    page.evaluate("document.body.dataset.streamscope = 'older'")
    page.evaluate("jupyterapp.commands.execute('docmanager:reload')")
    page.wait_for_function(f"{TIMELINE}?.model?.groups.length === 3")
    assert page.locator(f"{SHOWN} > ul").inner_text().startswith("The extension in JupyterLab is of another build than Streamscope")
    page.evaluate("(own) => (document.body.dataset.streamscope = own)", own)


def test_a_critical_path_is_never_drawn_on_the_spans_of_another_file(page, folder):
    """It is asked for again after a failure; where the file was written anew, it is read anew first."""
    page.evaluate("jupyterapp.commands.execute('filebrowser:go-to-path', { path: 'files' })")
    page.evaluate("jupyterapp.commands.execute('docmanager:open', { path: 'files/twice.parquet' }).then(() => null)")
    page.wait_for_function(f"{TIMELINE}?.layout && document.querySelector({SHOWN!r}).innerText.includes('twice.parquet')")
    button = page.locator(f"{SHOWN} button", has_text="critical path")
    page.route("**/streamscope/timeline*", lambda route: route.abort(), times=1)
    button.click()
    page.wait_for_function(f"document.querySelector({SHOWN!r}).innerText.includes('to ask again')")
    ss.read(folder / "graph.parquet").to_parquet(folder / "twice.parquet")
    button.click()
    page.wait_for_function(f"document.querySelector({SHOWN!r}).innerText.includes('written again since it was drawn')")
    assert page.evaluate(f"{TIMELINE}.model.groups.map(({{ label, path }}) => [label, path ?? null])") == [["graph", None]]
    button.click()
    page.wait_for_function(f"{TIMELINE}.model.groups[0].path")
    page.complaints[:] = [text for text in page.complaints if "net::ERR_FAILED" not in text]


def test_a_long_trace_is_drawn_in_tiles_and_answered_for_by_the_server(page, folder, large_trace):
    trace = large_trace(1_000_100)
    trace.to_parquet(folder / "long.parquet")
    (folder / "left.parquet").write_bytes((folder / "long.parquet").read_bytes())
    answers = []
    page.on("response", lambda response: answers.append(response) if "streamscope/timeline" in response.url else None)
    page.evaluate("jupyterapp.commands.execute('docmanager:open', { path: 'files/long.parquet' }).then(() => null)")
    page.wait_for_function(f"{TIMELINE}?.tiles && document.querySelector({SHOWN!r}).innerText.includes('long.parquet')", timeout=60_000)
    (group,) = page.evaluate(f"{TIMELINE}.model.groups.map(({{ count, remarks }}) => ({{ count, remarks }}))")
    assert group["count"] < 30_000
    assert "1,000,100 spans: what shares a pixel is one mark, zoom in for its spans" in group["remarks"]

    # The detail of a view comes when it rests: exactly the spans that the trace has there.
    middle = int(trace.spans.start_ns[700_000])
    page.evaluate(f"{TIMELINE}.setView({{ t0: {middle}, t1: {middle + 40_000} }})")
    page.wait_for_function(f"{TIMELINE}.tile.key === {TIMELINE}.tiles.key && {TIMELINE}.model.groups[0].exact", timeout=30_000)
    seen = page.evaluate(
        f"""(() => {{ const {{ start, end, span }} = {TIMELINE}.model.groups[0];
          const inView = (i) => start[i] < {middle + 40_000} && end[i] >= {middle};
          return [...span.keys()].filter(inView).map((i) => [span[i], start[i], end[i]]); }})()"""
    )
    spans = trace.spans
    rows = np.flatnonzero((spans.start_ns < middle + 40_000) & (spans.end_ns >= middle))
    assert sorted(seen) == [[row, spans.start_ns[row], spans.end_ns[row]] for row in rows.tolist()]

    # So is the axis aligned at an operation that Python finds.
    page.evaluate(f"{TIMELINE}.select(0, {TIMELINE}.model.groups[0].span.indexOf({rows[1]}))")
    operation = spans.operation[rows[1]]
    kernel = np.flatnonzero((spans.operation == operation) & (spans.kind == 8))[0]
    page.locator(f"{SHOWN} .ss-panel button:has-text('align here')").click()
    # The kernel starts at time 0.
    page.evaluate(f"{TIMELINE}.setView({{ t0: -1000, t1: 1000 }})")
    page.wait_for_function(
        f"(({{ state, model, layout: {{ plot }}, view: {{ t0, t1 }} }}) => state.align === 'operation' && Math.abs("
        f"{TIMELINE}.locate(0, model.groups[0].span.indexOf({kernel}))?.x - plot.left + t0 / (t1 - t0) * (plot.right - plot.left)"
        f") < 1)({TIMELINE})"
    )
    page.evaluate(f"{TIMELINE}.clear()")
    page.evaluate(f"{TIMELINE}.align('time')")

    # Searches and totals are the whole trace's.
    kernels = spans.kind == 8
    hits = np.flatnonzero(kernels & (spans.name == spans.names.index("kernel 11")))
    box = page.locator(f"{SHOWN} .ss-filter")
    box.fill("kernel 11")
    page.wait_for_function(f"document.querySelector('{SHOWN} .ss-count').innerText === '{len(hits):,}'")
    box.press("Enter")
    page.wait_for_function(f"{TIMELINE}.state.selection?.span === {hits[0]}", timeout=30_000)
    assert page.locator(f"{SHOWN} .ss-count").inner_text() == f"1 of {len(hits):,}"
    box.fill("")
    page.evaluate(f"{TIMELINE}.measureStretch(0, {spans.end_ns.max()})")
    page.wait_for_function(f"document.querySelector('{SHOWN} .ss-panel').innerText.includes('{kernels.sum():,}')", timeout=30_000)

    # What costs most takes a while, so it is asked for.
    page.locator(f"{SHOWN} summary", has_text="What costs most").click()
    page.wait_for_selector(f"{SHOWN} > section h2")

    # A server that does not answer leaves the picture, and is asked again.
    page.route("**/streamscope/timeline*", lambda route: route.abort(), times=1)
    page.evaluate(f"{TIMELINE}.setView({{ t0: 5000, t1: 9000 }})")
    page.wait_for_function(f"document.querySelector('{SHOWN} .ss-nudge').innerText.includes('asked for again')")
    page.wait_for_function(f"{TIMELINE}.tile.key === {TIMELINE}.tiles.key && {TIMELINE}.model.groups[0].exact", timeout=30_000)
    assert max(len(response.body()) for response in answers) < 3_000_000
    page.complaints[:] = [text for text in page.complaints if "net::ERR_FAILED" not in text]


@pytest.mark.parametrize("name", ["step.pt.trace.json", "packed.pt.trace.json.gz"])
def test_a_double_click_on_a_trace_of_pytorch_shows_it_with_its_warnings(page, name):
    page.evaluate("jupyterapp.commands.execute('filebrowser:go-to-path', { path: 'files' })")
    page.locator(item(name)).dblclick()
    page.wait_for_function(f"{TIMELINE}?.layout && {TIMELINE}.model.groups[0].engine === 'kineto'")
    assert page.locator(f"{SHOWN} > h1").inner_text().endswith(f"kineto · NVIDIA H200 · {name}")
    assert page.locator(f"{SHOWN} > p").inner_text().startswith("The GPU is busy ")
    assert "Left out: 1 event of category 'mine'" in page.locator(f"{SHOWN} > ul").inner_text()


def test_each_gpu_of_a_file_with_several_can_be_chosen(page):
    """All are shown first, in sections that fold."""
    page.evaluate("jupyterapp.commands.execute('filebrowser:go-to-path', { path: 'files' })")
    page.locator(item("two.pt.trace.json")).dblclick()
    page.wait_for_function(f"{TIMELINE}?.layout && document.querySelector({SHOWN!r}).innerText.includes('two · kineto · first')")
    choice = page.locator(f"{SHOWN} > label select")
    assert choice.locator("option").all_inner_texts() == ["all 2 GPUs", "GPU 0", "GPU 3"]
    assert choice.input_value() == ""
    assert page.locator(f"{SHOWN} > p").inner_text().startswith("GPU 0 of 2, which has most work, is busy ")
    choice.select_option("GPU 3")
    page.wait_for_function(f"{TIMELINE}?.layout && document.querySelector({SHOWN!r}).innerText.includes('two · kineto · second')")
    assert choice.input_value() == "3"
    assert "gpu=3" in page.locator(f"{SHOWN} footer").inner_text()
    # The file is written again, and has that GPU no more.
    two_gpus(Path(page.folder) / "two.pt.trace.json", second=0)
    page.evaluate("jupyterapp.shell.currentWidget.context.revert().then(() => null)")
    page.wait_for_function(f"document.querySelector({SHOWN!r}).innerText.includes('two · kineto · first')")
    page.wait_for_function(f"document.querySelector('{SHOWN} > ul').innerText.includes('GPU 3')")
    assert choice.count() == 0


def test_a_double_click_on_captured_code_shows_its_orders_on_the_simulated_device(page):
    page.evaluate("jupyterapp.commands.execute('filebrowser:go-to-path', { path: 'files' })")
    page.locator(item("mine.captured.json")).dblclick()
    page.wait_for_function(f"{TIMELINE}?.layout && {TIMELINE}.model.groups.length === 5 && {TIMELINE}.model.nature === 'simulated'")
    assert "Simulated times (simulated NVIDIA H200), not measured." in page.locator(f"{SHOWN} > p").inner_text()


LATE = "Rank 1 is late in "
JOB = ".jp-MainAreaWidget:not(.lm-mod-hidden) .ss-file"


def job_is_shown(page):
    """Wait for the map of a job, and find what its document says."""
    page.wait_for_selector(f"{JOB} .ss-map canvas")
    document = page.locator(JOB)
    assert document.locator("> p").first.inner_text().startswith(LATE)
    assert page.evaluate(f"{TIMELINE}.model.groups.map(({{ gpus }}) => gpus.length)") == [2]
    return document


def test_a_folder_is_opened_as_a_job_and_a_cell_leads_to_its_collective(page):
    page.evaluate("jupyterapp.commands.execute('filebrowser:go-to-path', { path: 'files' })")
    page.locator(item("ranks")).first.click(button="right")
    page.get_by_role("menuitem", name="Open as Job").click()
    document = job_is_shown(page)
    assert "Critical path through all ranks" in document.inner_text()
    canvas = document.locator(".ss-map canvas")
    canvas.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.wait_for_function(f"{TIMELINE}.state.selection")
    with page.expect_response(lambda response: "%22ranks%22%3A%5B0%2C1%5D" in response.url) as shown:
        document.get_by_role("button", name="show on timeline").click()
    assert shown.value.ok
    was_light = page.evaluate("document.body.dataset.jpThemeLight == 'true'")
    page.evaluate(
        "(theme) => jupyterapp.commands.execute('apputils:change-theme', { theme })", f"JupyterLab {'Dark' if was_light else 'Light'}"
    )
    page.wait_for_function(f"document.body.dataset.jpThemeLight != '{str(was_light).lower()}'")  # Meanwhile the page has no width.
    assert canvas.evaluate("(map) => new Promise((done) => requestAnimationFrame(() => done(map.width - map.clientWidth)))") == 0


def test_files_of_ranks_are_opened_as_a_job_and_a_double_click_opens_a_kept_one(page):
    page.evaluate("jupyterapp.commands.execute('filebrowser:go-to-path', { path: 'files/ranks' })")
    page.locator(item("rank0")).click()
    page.locator(item("rank1")).click(modifiers=["Control"])
    page.locator(item("rank1")).click(button="right")
    page.get_by_role("menuitem", name="Open as Job").click()
    job_is_shown(page)
    page.locator(item("rank0")).click()
    page.locator(item("rank0")).click(button="right")
    page.locator(".lm-Menu").wait_for()
    assert page.get_by_role("menuitem", name="Open as Job").count() == 0  # One file is no job.
    assert page.evaluate("jupyterapp.docRegistry.defaultWidgetFactory('a/ranks.json').name") == "Streamscope timeline"
    page.keyboard.press("Escape")
    page.evaluate("jupyterapp.commands.execute('filebrowser:go-to-path', { path: 'files' })")
    assert page.complaints == []


def test_other_json_stays_json_and_is_a_trace_where_somebody_says_so(page):
    registry = "jupyterapp.docRegistry"
    for name in ("plain.json", "settings.json", "a.json.gz", "a.sqlite", "a.db"):
        assert page.evaluate(f"{registry}.defaultWidgetFactory('files/{name}').name") != "Streamscope timeline"
        assert "Streamscope timeline" in page.evaluate(f"{registry}.preferredWidgetFactories('files/{name}').map(({{ name }}) => name)")
    for name in ("a.pt.trace.json", "a.pt.trace.json.gz", "host_1.2.pt.trace.json.gz", "a.parquet", "comparison.json", "a.captured.json"):
        assert page.evaluate(f"{registry}.defaultWidgetFactory('files/{name}').name") == "Streamscope timeline"
    opened = "jupyterapp.commands.execute('docmanager:open', {{ path: 'files/{}', factory: 'Streamscope timeline' }}).then(() => null)"
    page.evaluate(opened.format("plain.json"))
    page.wait_for_function(f"{TIMELINE}?.layout && document.querySelector({SHOWN!r}).innerText.includes('plain.json')")
    page.evaluate(opened.format("settings.json"))
    page.wait_for_selector(f"{SHOWN} > .ss-failed")
    assert "settings.json" in page.locator(f"{SHOWN} > .ss-failed").inner_text()
    assert "choose Open With" in page.locator(f"{SHOWN} > p").last.inner_text()


def test_a_hostile_file_is_refused_in_a_sentence(page):
    page.evaluate("jupyterapp.commands.execute('docmanager:open', { path: 'files/broken.parquet' }).then(() => null)")
    page.wait_for_selector(f"{SHOWN} > .ss-failed")
    said = page.locator(f"{SHOWN} > .ss-failed").inner_text()
    assert said.startswith("cannot read 'broken.parquet': ")
    assert page.locator(f"{SHOWN} img").count() == 0


def test_the_launcher_and_the_palette_open_the_explorer(page):
    assert page.evaluate("jupyterapp.commands.label('streamscope:explore')") == "Streamscope Explorer"
    page.evaluate("jupyterapp.commands.execute('launcher:create').then(() => null)")
    page.locator(".jp-LauncherCard:visible", has_text="Streamscope Explorer").click()
    page.wait_for_selector(".jp-NotebookPanel .ss-explorer canvas", timeout=60_000)
    assert "ss.explore()" in page.locator(".jp-NotebookPanel .jp-InputArea").first.inner_text()
    assert page.complaints == []


def source_of(lab, file, beside=""):
    with urllib.request.urlopen(f"{lab.server}/streamscope/source?{urlencode({'file': file, 'beside': beside})}", timeout=20) as response:
        return json.loads(response.read())


def test_sources_are_sought_beside_the_trace_and_below_the_root_alone(lab, folder):
    found = {"path": "files/notes.txt"}
    assert source_of(lab, "notes.txt", "files/graph.parquet") == found
    assert source_of(lab, "files/notes.txt", "other/graph.parquet") == found
    assert source_of(lab, str(folder / "notes.txt")) == found
    # A program's lines have names without folders, and those of other machines have other ones.
    assert source_of(lab, "notes.txt", "files/saved/deep/comparison.json") == found
    assert source_of(lab, "/elsewhere/files/notes.txt", "files/graph.parquet") == found
    assert source_of(lab, "/elsewhere/notes.txt", "files/graph.parquet")["refused"].endswith(
        "there is no files/elsewhere/notes.txt or elsewhere/notes.txt"
    )
    outside = folder.parent.parent / "outside.parquet"
    for file in ("notes.txt", "../outside.parquet", str(outside), "files/.hidden.parquet", "/etc/passwd", ""):
        assert "is not below the folder that JupyterLab shows" in source_of(lab, file)["refused"]


def answer(lab, path):
    try:
        with urllib.request.urlopen(f"{lab.server}/streamscope/timeline?{urlencode({'path': path})}", timeout=20) as response:
            return response.status, response.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


@pytest.mark.parametrize(
    "path",
    [
        "../outside.parquet",
        "files/../../outside.parquet",
        "/../outside.parquet",
        "files/.hidden.parquet",
        "files/none.parquet",
        "files",
        "",
    ],
)
def test_nothing_else_is_read(lab, folder, path):
    status, _ = answer(lab, path)
    assert status == 404


def test_a_document_is_bytes_and_is_not_kept(lab, folder):
    with urllib.request.urlopen(f"{lab.server}/streamscope/timeline?path=files/graph.parquet", timeout=20) as response:
        assert response.headers["Content-Type"] == "application/octet-stream"
        assert response.headers["Cache-Control"] == "no-store"


def test_a_path_of_the_disk_is_a_path_of_the_contents_and_no_other_kind_of_file_is_shown(lab, folder):
    assert answer(lab, str(folder.parent.parent / "outside.parquet"))[0] == 404
    status, body = answer(lab, "files/notes.txt")
    assert (status, b"mine" in body) == (200, False)
    refused = json.loads(body[8:])["refused"]
    assert refused.startswith("cannot read 'notes.txt': ")
    assert str(folder) not in refused


@pytest.mark.parametrize("ask", ["[1]", "no JSON", "[" * 3000 + "]" * 3000, '{"a":' * 3000 + "1" + "}" * 3000])
def test_a_question_that_is_none_is_refused(lab, folder, ask):
    query = urlencode({"path": "files/graph.parquet", "ask": ask})
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(f"{lab.server}/streamscope/timeline?{query}", timeout=20)
    assert refused.value.code == 400
    assert "ask= must be a JSON object" in json.loads(refused.value.read())["message"]


def readers_of(name):
    """Return which processes of this machine read a file."""
    found = []
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            found += [place.parent.name] * (f"/{name}\0".encode() in place.read_bytes())
    return found


def until(found):
    for _ in range(600):
        if found():
            return True
        time.sleep(0.05)
    return False


def test_the_reading_of_a_long_trace_ends_with_its_tab(lab, folder, large_trace):
    """Nobody else waits for it. Read to its end, it would stay for ten minutes."""
    if not (folder / "left.parquet").exists():
        large_trace(1_000_100).to_parquet(folder / "left.parquet")
    address = urlsplit(lab.server)
    with socket.create_connection((address.hostname, address.port)) as tab:
        tab.sendall(b"GET /streamscope/timeline?path=files/left.parquet HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert until(lambda: readers_of("left.parquet"))
    assert until(lambda: not readers_of("left.parquet"))
    assert answer(lab, "files/graph.parquet")[0] == 200
