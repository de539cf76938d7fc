"""The front end's own tests, its size, and its build."""

from __future__ import annotations

import importlib.util
import json
import subprocess
from base64 import b64encode
from pathlib import Path

import numpy as np
import pytest

from streamscope.words import exact_time_text, percent, time_text


def test_javascript_unit_tests(hook, node_path, repository):
    """All files in one process: one for each takes twice the time."""
    folder = repository / "widgets/frontend"
    hook.install_packages(folder)
    script = "".join(f"await import('./tests/{file.name}');" for file in sorted(folder.glob("tests/*.test.js")))
    command = [node_path, "--test-reporter=tap", "--input-type=module", "--eval", script]
    run = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "# fail 0" in run.stdout
    assert "# tests 0" not in run.stdout


@pytest.mark.parametrize(("name", "most", "imports"), [("timeline.js", 100_000, 1), ("report.js", 100_000, 0), ("details.js", 80_000, 0)])
def test_bundle_is_one_small_file_without_loose_ends(bundle, name, most, imports):
    """The first one imports the second, which Python sends."""
    text = bundle.with_name(name).read_text(encoding="utf-8")
    assert len(text.encode()) <= most
    assert text.count("import(") == text.count("import(URL.createObjectURL(") == imports
    assert "http://" not in text.replace("http://www.w3.org", "")
    assert "https://" not in text
    assert ".innerHTML" not in text


def test_an_extension_of_another_build_is_told_and_its_own_is_not(bundle, node_path, repository):
    described = json.loads((repository / "widgets/labextension/package.json").read_text(encoding="utf-8"))
    own = described["jupyterlab"]["_build"]["load"].partition("?v=")[2]
    script = f"""globalThis.document = {{ body: {{ dataset: {{}} }} }};
    const {{ notice }} = await import('data:text/javascript;base64,' + {json.dumps(b64encode(bundle.read_bytes()).decode())});
    const told = ['{own}', 'older'].map((streamscope) => (Object.assign(document.body.dataset, {{ streamscope }}), notice()));
    console.log(JSON.stringify([...told, (delete document.body.dataset.streamscope, notice())]))"""
    run = subprocess.run([node_path, "--input-type=module"], input=script, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    fits, other, none = json.loads(run.stdout)
    assert (fits, none) == ("", "")
    assert "another build than Streamscope" in other
    assert "reload" in other


def test_times_and_shares_are_written_by_one_rule_in_python_and_in_the_browser(node_path, repository):
    """From a nanosecond to eleven days, and where the unit changes."""
    random = np.random.default_rng(0)
    times_ns = [0, 1, 0.5, 62.4, 999.5, *(end + off for end in (1e6, 1e9) for off in (-1, -0.5, 0, 1)), *10 ** random.uniform(0, 15, 500)]
    script = f"import {{ exactTime, shareText, timeText }} from '{(repository / 'widgets/frontend/src/format.js').as_uri()}';"
    script += f"console.log(JSON.stringify({json.dumps(times_ns)}.flatMap((time) => [exactTime(time), timeText(time)])));"
    shares = [0, 1, 0.0004, 0.0006, 0.0094, 0.0096, 0.07, 0.004, *random.uniform(0, 1, 50)]
    script += f"console.log(JSON.stringify({json.dumps(shares)}.map(shareText)));"
    run = subprocess.run([node_path, "--input-type=module", "--eval", script], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    times, percents = map(json.loads, run.stdout.splitlines())
    assert times == [words(time_ns) for time_ns in times_ns for words in (exact_time_text, time_text)]
    assert percents == [percent(share) for share in shares]


@pytest.fixture
def hook(repository):
    spec = importlib.util.spec_from_file_location("hatch_build", repository / "hatch_build.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def copy_sources(repository: Path, root: Path) -> None:
    frontend = root / "widgets/frontend"
    (frontend / "src").mkdir(parents=True)
    (root / "widgets/labextension").mkdir()
    for name in ("build.js", "package.json", "package-lock.json", "src/index.js", "../labextension/package.json"):
        (frontend / name).write_bytes((repository / "widgets/frontend" / name).read_bytes())


def test_bundle_is_built_again_only_when_a_source_changes(hook, bundle, repository, tmp_path):
    copy_sources(repository, tmp_path)
    assert not hook.is_fresh(tmp_path)
    for built in (tmp_path / hook.BUNDLE, tmp_path / hook.REPORT_BUNDLE, tmp_path / hook.SECOND_BUNDLE):
        assert not hook.is_fresh(tmp_path)
        built.parent.mkdir(parents=True, exist_ok=True)
        built.write_text(f"// streamscope timeline, sources {hook.source_hash(tmp_path)}\nbody")
    assert hook.build_bundle(tmp_path).read_text().endswith("body")
    (tmp_path / "widgets/frontend/src/index.js").write_text("export const changed = 1;")
    assert not hook.is_fresh(tmp_path)


def test_a_failed_build_says_why_and_leaves_no_file(hook, bundle, repository, tmp_path):
    copy_sources(repository, tmp_path)
    (tmp_path / "widgets/frontend/node_modules").symlink_to(repository / "widgets/frontend/node_modules")
    (tmp_path / "widgets/frontend/src/index.js").write_text("import './missing.js';")
    with pytest.raises(RuntimeError, match=r"missing\.js"):
        hook.build_bundle(tmp_path)
    assert list((tmp_path / hook.BUNDLE).parent.iterdir()) == []


def test_node_is_asked_of_pypi_only_where_there_is_none(hook, repository, tmp_path, monkeypatch):
    copy_sources(repository, tmp_path)
    instance = hook.TimelineBuildHook(str(tmp_path), {}, None, None, "", "wheel")
    monkeypatch.setattr(hook, "node_on_path", lambda: True)
    assert instance.dependencies() == []
    monkeypatch.setattr(hook, "node_on_path", lambda: False)
    assert instance.dependencies() == [hook.NODE_FROM_PYPI]


def test_missing_bundle_is_an_error_with_a_remedy(tmp_path, monkeypatch):
    from streamscope.errors import OutputError
    from streamscope_widgets import payload

    monkeypatch.setattr(payload, "BUNDLE", tmp_path / "timeline.js")
    with pytest.raises(OutputError, match="make setup"):
        payload.bundle_source()
