"""How examples in words are run: without a GPU, in a folder of their own, and what they print is compared with what is shown."""

from __future__ import annotations

import doctest
from importlib.util import find_spec
from pathlib import Path

import pytest

from streamscope.errors import NoDeviceError

REPOSITORY = Path(__file__).resolve().parents[2]
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE

needs_notebook_packages = pytest.mark.skipif(
    find_spec("plotly") is None or find_spec("anywidget") is None, reason="examples show what notebooks show, too"
)


def run_examples(text, name, place, names, folder, monkeypatch):
    """Run each ``>>>`` of a text, with some names defined, and fail where it shows something else.

    ``place`` and the lines of ``text`` are where a failure says that the example stands.
    """
    for recordings in ("notebooks", "tests"):  # They open everywhere.
        (folder / recordings).symlink_to(REPOSITORY / recordings)
    monkeypatch.chdir(folder)
    # A machine with a GPU shows other times than those of the simulated device.
    monkeypatch.setattr("streamscope.devices.cuda.CudaDevice", no_gpu)
    examples = doctest.DocTestParser().get_doctest(text, dict(names), name, place, 0)
    told = []
    runner = doctest.DocTestRunner(optionflags=FLAGS, verbose=False)
    runner.run(examples, out=told.append)
    assert runner.tries > 0
    assert runner.failures == 0, "".join(told)


def no_gpu():
    raise NoDeviceError("not here")
