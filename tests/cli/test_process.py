"""The command line as a process among others: signals, closed outputs, encodings, widths."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import time
import weakref
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import streamscope
from streamscope.cli.main import main
from streamscope.cli.terminal import make_ready
from streamscope.comparing import compare as comparing
from streamscope.errors import ProgramError

SMALL = ("compare", "elementwise-chain", "--set", "length=6", "--set", "size=64", "--device", "simulated")
ROOT = Path(streamscope.__file__).resolve().parents[2]
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(str(ROOT / part) for part in ("toolkit", "widgets")), "NO_COLOR": "1"}
SCRIPT = Path(sys.executable).with_name("streamscope")
SIGNALS = {
    signal.SIGINT: "error: interrupted\n",
    signal.SIGTERM: "error: stopped by SIGTERM\n",
    signal.SIGHUP: "error: stopped by SIGHUP\n",
}
signals = pytest.mark.parametrize("number", SIGNALS, ids=lambda number: number.name)


def run(command, **options):
    return subprocess.run(command, env=ENVIRONMENT, stderr=subprocess.PIPE, text=True, check=False, timeout=120, **options)


@pytest.fixture(autouse=True)
def _handlers_are_as_before():
    before = [signal.getsignal(number) for number in SIGNALS]
    yield
    assert [signal.getsignal(number) for number in SIGNALS] == before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_a_signal_leaves_nothing(tmp_path, number):
    folder = tmp_path / "out"
    arguments = ["compare", "elementwise-chain", "--set", "length=20000", "--device", "simulated", "--out", str(folder)]
    command = [sys.executable, "-m", "streamscope", *arguments]
    process = subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    for _ in range(1200):
        if folder.exists():
            break
        time.sleep(0.05)
    process.send_signal(number)
    assert (*process.communicate(timeout=60), process.returncode) == ("", SIGNALS[number], 128 + number)
    assert not any(tmp_path.iterdir())


@signals
@pytest.mark.parametrize("ctrl_c", [signal.default_int_handler, signal.SIG_IGN], ids=["in front", "in the background"])
def test_a_signal_while_something_runs(tmp_path, monkeypatch, capsys, number, ctrl_c):
    """A shell makes processes in the background ignore Ctrl-C; the other two stop them all the same."""

    def stopped(*_, **__):
        signal.raise_signal(number)
        raise ValueError("it went on")

    monkeypatch.setattr(comparing, "compare", stopped)
    before = signal.signal(signal.SIGINT, ctrl_c)
    try:
        if (number, ctrl_c) == (signal.SIGINT, signal.SIG_IGN):
            with pytest.raises(ValueError, match="it went on"):
                main((*SMALL, "--out", str(tmp_path / "out")))
        else:
            assert main((*SMALL, "--out", str(tmp_path / "out"))) == 128 + number
            assert capsys.readouterr() == ("", SIGNALS[number])
    finally:
        signal.signal(signal.SIGINT, before)
    assert not any(tmp_path.iterdir())


@signals
def test_a_signal_where_python_ignores_exceptions(tmp_path, monkeypatch, capsys, number):
    """In the callback of a weak reference, as `importlib` has them; found by a signal that came there."""

    class Held:
        pass

    def collected(_):
        signal.raise_signal(number)

    def stopped(*_, **__):
        held = Held()
        noticed = weakref.ref(held, collected)
        del held
        assert noticed() is None
        for _ in range(1000):
            time.sleep(0.01)
        raise ValueError("it went on")

    monkeypatch.setattr(comparing, "compare", stopped)
    assert main((*SMALL, "--out", str(tmp_path / "out"))) == 128 + number
    assert capsys.readouterr() == ("", SIGNALS[number])
    assert not any(tmp_path.iterdir())


def test_a_signal_that_python_ignored_is_not_sent_to_whoever_called_the_command_line(monkeypatch):
    def ended(*_, **__):
        held = type("Held", (), {})()
        noticed = weakref.ref(held, lambda _: signal.raise_signal(signal.SIGINT))
        del held
        assert noticed() is None
        raise ProgramError("it failed by itself")

    monkeypatch.setattr(comparing, "compare", ended)
    assert main(SMALL) == 1
    time.sleep(0.05)


def test_other_exceptions_that_python_ignores_are_shown(monkeypatch, capsys):
    class Broken:
        def __del__(self):
            raise ValueError("in a finalizer")

    monkeypatch.setattr(sys, "unraisablehook", sys.__unraisablehook__)
    monkeypatch.setattr(comparing, "compare", lambda *_, **__: (Broken(), signal.raise_signal(signal.SIGTERM)))
    assert main(SMALL) == 143
    assert "ValueError: in a finalizer" in capsys.readouterr().err
    assert sys.unraisablehook is sys.__unraisablehook__


def test_a_signal_that_is_ignored_stays_ignored(monkeypatch, capsys):
    """As under nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        make = comparing.compare
        monkeypatch.setattr(
            comparing, "compare", lambda *given, **options: (signal.raise_signal(signal.SIGHUP), make(*given, **options))[-1]
        )
        assert main(SMALL) == 0
        assert capsys.readouterr().err == ""
    finally:
        signal.signal(signal.SIGHUP, before)


AT_AN_IMPORT = """
import signal, sys

class AtAnImport:
    def find_spec(self, name, *rest):
        if name == sys.argv[1]:
            signal.raise_signal(int(sys.argv[2]))

sys.meta_path.insert(0, AtAnImport())
from streamscope.cli.main import main
sys.exit(main(sys.argv[3:]))
"""


@pytest.mark.parametrize(
    ("module", "number"),
    [
        ("streamscope.cli.terminal", signal.SIGINT),
        ("typer", signal.SIGINT),
        ("dataclasses", signal.SIGTERM),
        ("numpy._core.multiarray", signal.SIGINT),
        ("streamscope.comparing.compare", signal.SIGHUP),
    ],
    ids=str,
)
def test_a_signal_during_imports(module, number):
    result = run([sys.executable, "-c", AT_AN_IMPORT, module, str(int(number)), *SMALL], stdout=subprocess.PIPE)
    assert (result.returncode, result.stdout, result.stderr) == (128 + number, "", SIGNALS[number])


ON_START = """
import signal, sys

class AtAnImport:
    def find_spec(self, name, *rest):
        if name == {name!r}:
            signal.raise_signal(signal.SIGINT)

sys.meta_path.insert(0, AtAnImport())
"""
COMMANDS = {"module": ["-m", "streamscope"], "options": ["-X", "utf8", "-Wdefault", "-mstreamscope"], "script": [SCRIPT]}


@pytest.fixture
def interrupted_at(tmp_path):
    """Return a function that runs Python, with Ctrl-C as a module is imported for the first time."""

    def run_interrupted(name, *command, **options):
        (tmp_path / "sitecustomize.py").write_text(ON_START.format(name=name))
        path = os.pathsep.join((str(tmp_path), ENVIRONMENT["PYTHONPATH"]))
        done = subprocess.run(
            [sys.executable, *command],
            env=ENVIRONMENT | {"PYTHONPATH": path},
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
            **options,
        )
        return done.returncode, done.stdout, done.stderr

    return run_interrupted


@pytest.mark.parametrize("name", ["streamscope.public_names", "streamscope.program", "streamscope.cli", "streamscope.cli.main", "typer"])
@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_ctrl_c_before_the_command_line_is_imported(interrupted_at, name, command):
    if command == [SCRIPT] and not SCRIPT.exists():
        pytest.skip("the package is not installed")
    assert interrupted_at(name, *command, "workloads") == (130, "", "error: interrupted\n")


def test_ctrl_c_that_is_ignored_stays_ignored_as_the_command_line_is_imported(interrupted_at):
    """As in the background of a shell."""
    code, out, err = interrupted_at("streamscope.program", "-m", "streamscope", "--version", preexec_fn=ignore_ctrl_c)
    assert (code, err) == (0, "")
    assert out


def ignore_ctrl_c():
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@pytest.mark.parametrize("name", ["streamscope", "-m", "mine.py"])
def test_ctrl_c_in_a_program_of_yours_raises_as_ever(tmp_path, interrupted_at, name):
    """Even in one that has the name of the command, and in a package that is run with ``-m``."""
    code = "try:\n import streamscope\nexcept KeyboardInterrupt:\n print('mine')\n"
    path = tmp_path / "mine" / "__init__.py" if name == "-m" else tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(code)
    (tmp_path / "mine").mkdir(exist_ok=True)
    (tmp_path / "mine" / "__main__.py").write_text("")
    command = ("-m", "mine") if name == "-m" else (path,)
    assert interrupted_at("streamscope.program", *command) == (0, "mine\n", "")


def test_little_is_imported_before_signals_find_their_handlers():
    code = "import sys; before = {*sys.modules}; import streamscope.cli.main; print(*{*sys.modules} - before)"
    loaded = {*run([sys.executable, "-c", code], stdout=subprocess.PIPE).stdout.split()}
    assert "streamscope.cli.main" in loaded
    assert not loaded & {"numpy", "typer", "click", "rich", "pyarrow", "pandas", "ast", "inspect", "dataclasses"}


def test_the_end_of_a_file_inside_a_command_is_no_interrupt(monkeypatch, capsys):
    def broken(*_, **__):
        raise EOFError("a defect")

    monkeypatch.setattr(comparing, "compare", broken)
    with pytest.raises(EOFError, match="a defect"):
        main(SMALL)
    assert "interrupted" not in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [("workloads",), ("--version",), ("--help",), (*SMALL, "--json")], ids=lambda words: words[0])
def test_nothing_runs_where_nobody_can_read_it(monkeypatch, capsys, arguments):
    monkeypatch.setattr(comparing, "compare", lambda *_, **__: pytest.fail("it ran"))
    monkeypatch.setattr(sys, "stdout", None)
    assert main(arguments) == 1
    assert capsys.readouterr().err == "error: standard output is closed\nhint: send it to a file, or to /dev/null\n"


@pytest.mark.parametrize(
    ("closed", "code", "err"),
    [
        (">&-", 1, "error: standard output is closed\nhint: send it to a file, or to /dev/null\n"),
        ("1</dev/null", 1, "error: cannot write the output: Bad file descriptor\nhint: free space, or send it elsewhere\n"),
        ("2>&- >&-", 1, ""),
    ],
)
def test_closed_outputs_in_a_real_process(closed, code, err):
    result = run(["sh", "-c", f'exec "$0" "$@" {closed}', sys.executable, "-m", "streamscope", "workloads"])
    assert (result.returncode, result.stderr) == (code, err)


def test_a_complaint_that_nobody_reads(monkeypatch):
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as nobody:
        monkeypatch.setattr(sys, "stderr", nobody)
        assert main(("nope",)) == 2


@given(text=st.text(st.characters(exclude_characters="\r\n")), encoding=st.sampled_from(["ascii", "latin-1", "utf-8"]))
def test_every_text_can_be_written(text, encoding):
    """Lone surrogates, which names of files may have, too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding=encoding))
        make_ready()
        sys.stdout.write(text)
        sys.stdout.flush()
        found = sys.stdout.buffer.getvalue().decode(encoding)
    assert len(found) == len(text)


@pytest.mark.parametrize("columns", ["0", "1", "39", "-5", "²", "", "1e3", "99999999"])
@pytest.mark.parametrize("arguments", [("workloads",), ("--help",)], ids=lambda words: words[0])
def test_a_width_at_which_nothing_can_be_read_is_forgotten(monkeypatch, capsys, columns, arguments):
    monkeypatch.setenv("COLUMNS", "80")
    assert main(arguments) == 0
    at_80 = capsys.readouterr().out
    monkeypatch.setenv("COLUMNS", columns)
    assert main(arguments) == 0
    assert capsys.readouterr().out == at_80
