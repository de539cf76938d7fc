"""The notebooks run from top to bottom, and the recordings beside them open."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import streamscope as ss
from streamscope import engine_entry
from streamscope.trace import SpanKind
from streamscope.workloads import NETWORKS, WORKLOADS

pytestmark = pytest.mark.slow

ENGINES, OPERATORS, OWN_CODE, GPUS, RANKS = NOTEBOOKS = (
    "01_compare_engines.ipynb",
    "02_operators_and_compilation.ipynb",
    "03_your_own_code.ipynb",
    "04_several_gpus.ipynb",
    "05_which_rank.ipynb",
)
SHORTER = {
    ENGINES: {"(10, 14, 18, 20, 22)": "(10, 14, 18)"},
    OPERATORS: {"ss.compare_compilation(encoder_layer, *inputs, ": "ss.compare_compilation(encoder_layer, *inputs, repeats=1, "},
    OWN_CODE: {"counts = (1, 2, 3, 4, 6, 8, 12)": "counts = (1, 3, 12)"},
    GPUS: {'"¼ of NVLink": 0.25, "½ of NVLink": 0.5, ': ""},
    RANKS: {},
}
"""Of cells that do the same for many sizes, what the tests run in their place: fewer of them."""
MOST_BYTES = 1_500_000
RECORDED = [name for name, workload in WORKLOADS.items() if workload not in NETWORKS]
# Copies with the outputs of a GPU, made by scripts/execute_notebook.py.
EVERY_COPY = sorted((Path(__file__).parents[2] / "notebooks" / "recorded").rglob("*.executed.ipynb"))
COPIES = [path for path in EVERY_COPY if path.parent.name == "recorded"]
OLDER: set[str] = set()
"""Copies that are older than their notebook, and wait for a GPU to be made again."""
_OLD = pytest.mark.xfail(strict=True, reason="older than its notebook; scripts/execute_notebook.py makes it again on a GPU")
WIDGET = "application/vnd.jupyter.widget-view+json"
PLOTLY = "application/vnd.plotly.v1+json"
# A kernel's own warnings are about the machine; ours and those of the libraries that we call are errors.
STRICT_SITE = "import warnings\nfor name in ('streamscope', 'streamscope_widgets', '__main__'):\n"
STRICT_SITE += "    warnings.filterwarnings('error', module=rf'{name}(\\.|$)')\n"
# As in conftest.py: Plotly imports nbformat.
STRICT_SITE += "import sys\nsys.modules['rfc3987_syntax'] = None\n"


def outputs(notebook, mime):
    """Return what the notebook displayed of one MIME type."""
    shown = (output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs)
    return [output["data"][mime] for output in shown if mime in output.get("data", {})]


def streams(notebook):
    """Return what the notebook printed, by stream."""
    printed = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs if output.output_type == "stream"]
    return {name: "".join(output["text"] for output in printed if output["name"] == name) for name in ("stdout", "stderr")}


@pytest.fixture(scope="module")
def nbformat():
    """The module, whose import takes seconds, so that it is left to who runs these tests."""
    pytest.importorskip("nbclient")
    return pytest.importorskip("nbformat")


@pytest.fixture(scope="module")
def script(repository):
    """The script that makes the copy with outputs."""
    spec = importlib.util.spec_from_file_location("execute_notebook", repository / "scripts" / "execute_notebook.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def execute(script):
    """`execute` of the script."""
    return script.execute


@pytest.fixture(scope="module")
def said_today(script):
    """Hash of what Streamscope says of the recordings, beside which all copies lie."""
    (folder,) = {copy.parent for copy in COPIES}
    return script.said_hash(folder)


def shorten(path, replaced):
    """Write a notebook whose code has each text once that is replaced."""
    notebook = json.loads(path.read_text(encoding="utf-8"))
    for old, new in replaced.items():
        (cell,) = [cell for cell in notebook["cells"] if cell["cell_type"] == "code" and old in "".join(cell["source"])]
        cell["source"] = "".join(cell["source"]).replace(old, new)
    path.write_text(json.dumps(notebook), encoding="utf-8")


@pytest.fixture(scope="module")
def checkout(repository, tmp_path_factory):
    """A copy of the folders that notebooks read, and a folder for IPython that makes warnings of ours errors."""
    root = tmp_path_factory.mktemp("checkout")
    shutil.copytree(repository / "notebooks", root / "notebooks")
    shutil.copytree(repository / "benchmarks" / "results", root / "benchmarks" / "results")
    startup = root / "ipython" / "profile_default" / "startup"
    startup.mkdir(parents=True)
    (startup / "strict.py").write_text(STRICT_SITE)
    (root / "temporary").mkdir()
    return root


@pytest.fixture(scope="module")
def kernel(repository, checkout):
    """A kernel that all notebooks run in, one after the other. It lists no GPU, so that `auto` is the simulated device."""
    pytest.importorskip("nbclient")
    from jupyter_client.manager import start_new_kernel

    own = {
        "PYTHONPATH": os.pathsep.join(str(repository / part) for part in ("toolkit", "widgets")),
        "IPYTHONDIR": str(checkout / "ipython"),
        "TMPDIR": str(checkout / "temporary"),
        "CUDA_VISIBLE_DEVICES": "",
    }
    environment = {name: value for name, value in os.environ.items() if name != "PLOTLY_RENDERER"}
    manager, client = start_new_kernel(kernel_name="python3", cwd=checkout / "notebooks", env=environment | own)
    client.stop_channels()
    yield manager
    manager.shutdown_kernel()


@pytest.fixture(scope="module")
def executed_once(checkout, kernel, execute):
    """A function of a notebook's name: it with its outputs, run in the copy, on the simulated device, as if the kernel were new."""
    anew = f"import os\nos.environ['STREAMSCOPE_CACHE_DIR'] = {str(checkout / 'cache')!r}\n"
    anew += "shell = get_ipython()\nshell.extension_manager.loaded.discard('streamscope')\n"
    anew += "shell.reset(new_session=True)\nget_ipython().execution_count = 0"

    @cache
    def run(name):
        if name == OPERATORS:
            pytest.importorskip("cuda.bindings.nvrtc")
        shorten(checkout / "notebooks" / name, SHORTER[name])
        client = kernel.client()
        client.start_channels()
        client.wait_for_ready(timeout=60)
        assert client.execute_interactive(anew, timeout=60)["content"]["status"] == "ok"
        client.stop_channels()
        notebook = execute(checkout / "notebooks" / name, kernel=kernel)
        assert not (checkout / "cache").exists(), "it writes to the user's cache of kernels"
        return notebook

    return run


@pytest.fixture(params=NOTEBOOKS)
def executed(request, executed_once):
    """Each notebook with its outputs."""
    return executed_once(request.param)


@pytest.fixture
def operators(executed_once):
    """The notebook on operators and compilation, with its outputs."""
    return executed_once(OPERATORS)


def test_every_notebook_is_tested(repository):
    assert sorted(path.name for path in (repository / "notebooks").glob("*.ipynb")) == sorted(NOTEBOOKS)


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_notebook_is_stored_without_outputs(repository, name, nbformat):
    notebook = nbformat.read(repository / "notebooks" / name, as_version=4)
    nbformat.validate(notebook)
    assert notebook.metadata.kernelspec.name == "python3"
    assert "widgets" not in notebook.metadata
    for cell in notebook.cells:
        if cell.cell_type == "code":
            assert (cell.outputs, cell.execution_count) == ([], None)


def test_every_cell_runs(executed):
    # `execute` raises where a cell fails; that every cell ran is seen by its number.
    code = [cell for cell in executed.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))


def test_notebook_on_engines_shows_what_it_speaks_of(executed_once):
    executed = executed_once(ENGINES)
    verdicts = [html for html in outputs(executed, "text/html") if "graph" in html and "<img" in html]
    simulated = [html for html in verdicts if "simulated" in html]
    assert len(simulated) >= 4
    assert len(verdicts) - len(simulated) >= 4, "recorded comparisons are not shown as simulated ones"
    assert len(outputs(executed, WIDGET)) >= 5
    assert len(outputs(executed, PLOTLY)) >= 5


def test_notebook_on_your_own_code_says_first_what_there_is_to_gain(executed_once):
    executed = executed_once(OWN_CODE)
    captured, compared, certificate = [html for html in outputs(executed, "text/html") if "must keep their order" in html]
    assert "googlenet · 309 kernels, copies and sets" in captured
    assert re.search(r">At most \d\S* times as fast as the capture: ", captured)
    assert re.search(r": at most \d\S* times as fast as the capture: ", compared)
    (networks,) = (html for html in outputs(executed, "text/html") if "<th" in html and "dataframe" in html)
    assert networks.count("<tr") == 1 + 14
    assert "NaN" not in networks
    assert re.search(r"GoogLeNet took [\d,]+ µs as a CUDA graph and \d+ µs in the order that `ss", streams(executed)["stdout"])
    assert "each has a path in the true order" in certificate
    graphs = [html for html in outputs(executed, "text/html") if "inception3a" in html and "<map" in html]
    assert len(graphs) == 1


def test_notebook_on_several_gpus_shows_what_it_speaks_of(executed_once):
    executed = executed_once(GPUS)
    tables = (re.findall(r"<td>(.*?)</td>", html) for html in outputs(executed, "text/html") if "dataframe" in html)
    shapes = (("by engine", 6), ("by rows", 5), ("by pieces", 4), ("pipelines", 4), ("hosts", 6))
    found = {name: np.array(cells, float).reshape(-1, columns) for cells, (name, columns) in zip(tables, shapes, strict=True)}
    (graph, graph_dual), (exposed, exposed_dual) = found["by engine"][-2:, [0, 3]].T
    assert graph_dual == pytest.approx(0.87 * graph, rel=0.03)  # Two H200 took 461 µs and 402.
    assert exposed_dual < 0.8 * exposed  # There it was 0.68, of recordings by events: these may be off by 0.2.
    assert np.all(np.diff(found["by rows"][:, 2]) > 0)  # hidden
    assert np.all(np.diff(found["by pieces"][:, 0]) > 0)  # makespan
    gpipe, one_forward_one_backward = found["pipelines"][-2:, 3]  # exposed, with eight micro-batches
    assert one_forward_one_backward == pytest.approx(gpipe, rel=0.05)
    assert gpipe < 30  # of 260 µs of copies: both hide nine tenths
    measured, simulated = found["hosts"][:, [0, 2]], found["hosts"][:, [1, 3]]
    assert measured.shape == (8, 2)  # four programs on two and four H100
    off = np.abs(simulated / measured - 1)
    assert np.median(off) < 0.05
    assert off.max() < 0.15  # of a pipeline's graph: its products take 9.6 µs, and 8.4 by the cost model
    assert len(outputs(executed, WIDGET)) == 3
    assert len(outputs(executed, PLOTLY)) == 1


def test_notebook_on_ranks_names_the_late_one_and_its_cause(executed_once):
    executed = executed_once(RANKS)
    said = "".join(streams(executed)["stdout"])
    assert re.search(r"rank 1: late 14 times of 70, .*\nmore work: .*augment", said)
    predicted, recorded = re.search(r"a step takes ([\d.]+) ms instead[\s\S]*without these kernels: ([\d,]+) µs", said).groups()
    assert float(predicted) * 1000 == pytest.approx(float(recorded.replace(",", "")), rel=0.05)
    more_work, sleeps = [html for html in outputs(executed, "text/html") if "Rank 1 is late" in html and "ss-still" not in html]
    assert "augment" in more_work
    assert "load batch on the host" in sleeps
    assert len(outputs(executed, WIDGET)) == 1


def test_recordings_of_captured_code_open_and_are_of_a_gpu(repository):
    paths = sorted((repository / "notebooks" / "recorded" / "captured").glob("*.captured.json"))
    assert len(paths) == 14
    for path in paths:
        loaded = ss.load_captured(path)
        assert (loaded.name, loaded.device) == (path.name.removesuffix(".captured.json"), "NVIDIA H200")
        assert loaded.certificate().unordered() == []
        assert path.stat().st_size < MOST_BYTES / 4


def test_every_chart_has_a_title_and_says_what_its_axes_are(executed):
    for figure in outputs(executed, PLOTLY):
        layout = figure["layout"]
        assert layout["title"]["text"]
        titles = [axis.get("title", {}).get("text", "") for name, axis in layout.items() if re.match("[xy]axis", name)]
        assert any(re.search("[µm]s|%|×|, s$|GB/s", title) for title in titles), layout["title"]


def test_notebook_complains_of_nothing(executed):
    assert streams(executed)["stderr"] == ""


@pytest.mark.parametrize("name", [name for name in NOTEBOOKS if name != RANKS])  # It runs nothing.
def test_notebook_says_that_it_ran_on_the_simulated_device(executed_once, name):
    executed = executed_once(name)
    assert "(simulated)" in streams(executed)["stdout"].splitlines()[0]


def test_before_every_widget_stands_its_picture_and_no_state_is_kept(executed):
    assert "widgets" not in executed.metadata
    for cell in executed.cells:
        shown = [output.get("data", {}) for output in cell.get("outputs", ())]
        for before, data in zip([{}, *shown], shown, strict=False):
            if WIDGET in data:
                assert "ss-still" in before["text/html"]
                assert "<img" in before["text/html"]


def test_saved_notebook_stays_small(executed, nbformat):
    assert len(nbformat.writes(executed).encode()) < MOST_BYTES


def said(notebook, pattern):
    """Return the groups of what the notebook printed, where it printed it once."""
    (found,) = re.findall(pattern, streams(notebook)["stdout"])
    return found


def test_source_that_is_printed_whole_compiles(operators):
    from streamscope.kernels.compile.nvrtc import compile_unit

    (printed,) = [
        output["text"] for cell in operators.cells for output in cell.get("outputs", ()) if "struct half_t" in output.get("text", "")
    ]
    name = re.search(r"tanh_\w+", printed).group()
    image, log = compile_unit(printed, name, "sm_90")
    assert image, log
    assert name.encode() in image


def test_what_is_compiled_once_is_taken_from_memory_and_in_a_new_process_from_disk(operators):
    _, kernels = said(operators, r"(\d+) operations need (\d+) generated kernels")
    (compiled,) = [html for html in outputs(operators, "text/html") if f"{kernels} kernels: {kernels} compiled; in" in html]
    assert "<img" in compiled
    assert said(operators, rf"\n({kernels} kernels: {kernels} from memory); ")
    assert said(operators, rf"\n({kernels} kernels: {kernels} from disk); ")
    assert said(operators, rf"kernels  ({kernels}) kernels in ")  # by `streamscope cache`
    assert any(f"{kernels} kernels compile in" in html for html in outputs(operators, "text/html"))


def test_mistakes_are_shown_where_they_are_and_harm_no_other_kernel(operators):
    line, caret = said(operators, r'error: identifier "sigmod" is undefined\n(.*\n)(.*)\^')
    assert line[len(caret) :].startswith("sigmod(x)")
    assert said(operators, r"\n(1 kernels?: 1 from memory); ")


def test_gradients_of_the_operator_of_one_line_agree_with_differences(operators):
    (table,) = [text for text in outputs(operators, "text/plain") if "dx" in text and "largest error" in text]
    errors = [float(row.split()[-1]) for row in table.splitlines()[1:]]
    assert len(errors) == 3
    assert max(errors) < 1e-7


def test_fusion_gives_the_same_bits(operators):
    assert said(operators, "The same bits: (.*)") == "yes"


def results_of(repository, name):
    return json.loads((repository / "benchmarks" / "results" / name).read_text(encoding="utf-8"))


def test_recorded_fusion_is_as_the_notebook_says(repository):
    programs = results_of(repository, "fusion.json")["programs"]
    faster = {name: program["over_async"] for name, program in programs.items()}
    for name in ("chain, 4 rows", "block, 4 rows"):
        assert min(faster[name]["graph"], faster[name]["fused async"]) > 1.3
    for name in ("chain, 16384 rows", "block, 16384 rows"):
        assert faster[name]["graph"] < 1.1
        assert faster[name]["fused async"] > 1.5


def test_recorded_compilation_is_as_the_notebook_says(repository):
    recorded = results_of(repository, "batched_compilation_16_cores.json")
    assert recorded["cores"] == 16

    def gain(each, *workers):
        return each["one_by_one"]["median_s"] / min(each["together"][key]["median_s"] for key in workers or each["together"])

    sets, programs = (recorded[key].values() for key in ("sets", "programs"))
    assert all(each["kernels"] == 128 and gain(each, "1 workers") > 1.5 for each in sets)
    assert max(gain(each) for each in programs) < min(gain(each) for each in sets)


def test_recorded_tuning_is_shown_where_there_is_no_gpu(repository, operators):
    kernels = results_of(repository, "tuning.json")["kernels"]
    better = [each for each in kernels if each["choice"] != "default"]
    assert said(operators, "another variant than the default was faster for (.*) kernels") == f"{len(better)} of {len(kernels)}"
    (table,) = [html for html in outputs(operators, "text/html") if "chosen, µs" in html]
    assert all(each["kernel"] in table for each in better)
    assert table.count("<tr") == 2 + len(better)  # two rows of headings


def test_recorded_bandwidth_beats_a_copy_only_where_less_is_written_than_read(repository):
    rows = results_of(repository, "bandwidth.json")["rows"]
    as_much = [row for row in rows if row["bytes"] == 2 * 256 * 2**20]
    assert as_much
    assert max(row["share_of_copy"] for row in as_much) < 1.02 < max(row["share_of_copy"] for row in rows)


@pytest.mark.parametrize("copy", [pytest.param(path, id=path.name, marks=[_OLD] if path.name in OLDER else []) for path in COPIES])
def test_copy_with_outputs_is_of_the_notebook_as_it_is(repository, script, copy, nbformat):
    executed = nbformat.read(copy, as_version=4)
    notebook = nbformat.read(repository / "notebooks" / copy.name.replace(".executed", ""), as_version=4)
    links = {"markdown": lambda text: script.links_from("..", text), "code": str}
    assert [cell.source for cell in executed.cells[:-1]] == [links[cell.cell_type](cell.source) for cell in notebook.cells]


@pytest.mark.parametrize("copy", EVERY_COPY, ids=lambda path: path.name)
def test_a_copy_ends_with_its_card_and_day(copy, nbformat):
    *_, last = nbformat.read(copy, as_version=4).cells
    assert re.fullmatch(r"Executed on NVIDIA H[12]00.*, 2\d{3}-\d\d-\d\d\.", last.source)


def test_links_of_a_copy_hold_where_it_is_kept(script, repository):
    for source in (repository / "notebooks" / ENGINES, *sorted((repository / "notebooks" / "lessons").glob("*.ipynb"))):
        kept = repository / "notebooks" / "recorded" / source.parent.relative_to(repository / "notebooks")
        assert (kept / script.way_back(source) / source.name).resolve() == source


@pytest.mark.parametrize("name", [*NOTEBOOKS, *(str(path.relative_to(COPIES[0].parents[1])) for path in EVERY_COPY)])
def test_links_lead_to_files_that_make_lab_serves(repository, name, nbformat):
    shown = subprocess.run(["make", "--dry-run", "lab"], cwd=repository, capture_output=True, text=True, check=True).stdout
    (served,) = re.findall(r"jupyter lab .*--ServerApp\.root_dir='([^']+)'", shown)
    notebook = repository / "notebooks" / name
    texts = [cell.source for cell in nbformat.read(notebook, as_version=4).cells if cell.cell_type == "markdown"]
    links = {link for text in texts for link in re.findall(r"\]\((?![a-z]+:|#)([^)#]+)", text)}
    assert links
    for link in links:
        target = (notebook.parent / link).resolve()
        assert target.is_file(), link
        assert target.is_relative_to(served), link


@pytest.mark.parametrize("copy", COPIES, ids=lambda path: path.name)
def test_copy_with_outputs_shows_what_the_code_says_today(said_today, copy, nbformat):
    assert nbformat.read(copy, as_version=4).metadata["streamscope"]["said"] == said_today


def test_the_hash_is_of_words_and_not_of_looks(script, tmp_path, repository):
    shutil.copytree(repository / "notebooks" / "recorded" / "branches", tmp_path / "branches")
    said = script.said_hash(tmp_path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("streamscope_widgets.show.palette.KERNELS", ("#000000",) * 21)
        assert script.said_hash(tmp_path) == said
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("streamscope_widgets.still_timeline.HOST_WORDS", {SpanKind.LAUNCH: "begin"})
        assert script.said_hash(tmp_path) != said


@pytest.mark.parametrize("copy", COPIES, ids=lambda path: path.name)
def test_copy_with_outputs_is_of_a_gpu(copy, nbformat):
    executed = nbformat.read(copy, as_version=4)
    printed = streams(executed)["stdout"]
    assert "(cuda)" in printed.splitlines()[0]
    assert not re.search(r"/(tmp|home|root|work)/", printed), "a path of the machine that made it"
    assert copy.stat().st_size < MOST_BYTES


def test_there_is_a_recording_of_every_workload(repository):
    recorded = {path.parent.name for path in (repository / "notebooks" / "recorded").glob("*/comparison.json")}
    assert recorded == {*RECORDED}


@pytest.fixture(params=RECORDED)
def recording(request, repository):
    """The folder of one recording."""
    return repository / "notebooks" / "recorded" / request.param


def test_recording_opens_with_its_verdict_and_numbers(recording):
    stored = json.loads((recording / "comparison.json").read_text(encoding="utf-8"))
    comparison = ss.load_comparison(recording)
    assert list(comparison) == [engine for engine in engine_entry.ENGINES if engine in comparison]
    assert comparison.verdict == stored["verdict"]
    written = json.loads(json.dumps(comparison.to_dict()))
    for engine, metrics in written["engines"].items():
        # Recordings of one GPU are older than the metrics of several, which have no value there.
        newer = metrics.keys() - stored["engines"][engine].keys()
        assert all(metrics.pop(name) is None for name in newer), newer
    assert written == {key: stored[key] for key in written}
    for engine, run in comparison.items():
        assert run.metrics.makespan_us == pytest.approx(np.median(stored["makespans_ns"][engine]) / 1e3)


def test_recording_is_real_and_right(recording):
    comparison = ss.load_comparison(recording)
    # Those of several GPUs may be of H100.
    assert comparison.device.kind == "cuda"
    assert comparison.device.name.removeprefix("2 × ").startswith("NVIDIA H")
    assert all(run.correct for run in comparison.values())
    for engine, run in comparison.items():
        assert run.trace.info.device == comparison.device
        assert run.trace.info.engine == engine
        # Kernels side by side in a graph are stamped, where the recorder may: events would tell their ends only.
        assert run.trace.info.recorder in (("events", "stamps") if engine == "graph-dual" else ("events",))


def test_recordings_are_of_one_program_each(recording):
    comparison = ss.load_comparison(recording)
    kernels = {engine: int((run.trace.spans.kind == SpanKind.KERNEL).sum()) for engine, run in comparison.items()}
    assert len(set(kernels.values())) == 1, kernels


def makespan_us(repository, workload):
    comparison = ss.load_comparison(repository / "notebooks" / "recorded" / workload)
    return {engine: metrics.makespan_us for engine, metrics in comparison.metrics.items()}


def test_a_graph_makes_the_recorded_chain_at_least_two_and_a_half_times_faster(repository):
    chain = makespan_us(repository, "elementwise-chain")
    assert chain["async"] / chain["graph"] >= 2.5


def test_a_second_stream_inside_the_graph_pays_for_the_recorded_gradients(repository):
    gradients = makespan_us(repository, "conv-backward")
    assert gradients["graph-dual"] < gradients["graph"]


def test_recorded_kernels_overlap_only_on_two_streams(recording):
    overlap = {engine: metrics.overlap for engine, metrics in ss.load_comparison(recording).metrics.items()}
    assert [overlap[engine] for engine in ("sync", "async", "graph")] == [0, 0, 0]
