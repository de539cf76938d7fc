"""``streamscope ranks``: tables that fit a terminal, files that it writes, and exit codes."""

from __future__ import annotations

import json
import re

import pytest

from streamscope.cli.main import main


@pytest.fixture(scope="module")
def recorded(repository):
    """A job of four ranks, whose kernels have long names."""
    return str(repository / "notebooks" / "recorded" / "ranks" / "more-work")


@pytest.mark.parametrize("columns", [120, 80, 60, 40])
def test_tables_keep_their_numbers_in_a_narrow_terminal(recorded, columns, monkeypatch, capsys):
    """Rich leaves out columns that have no room, and says nothing. Where short names do not help, lines are too long instead."""
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("COLUMNS", str(columns))
    assert main(["ranks", recorded]) == 0
    lines = [line.rstrip() for line in re.sub(r"\x1b\[[\d;]*m", "", capsys.readouterr().out).splitlines()]
    gpus = [line for line in lines if re.match(r"[0-3] +NVIDI", line)]
    assert [line.split()[-1] for line in gpus] == ["17,213", "6,949", "17,243", "17,109"]
    assert len([line for line in lines if re.match(r"[0-3]  .* \d+ %$", line)]) == 8
    if columns >= 80:
        assert max(map(len, lines)) <= columns


@pytest.mark.parametrize("changed", [[], ["--what-if"]])
def test_saving_makes_missing_folders_and_says_where(recorded, tmp_path, changed, capsys):
    for name in ("new/dir/job.html", "new/folder/job"):
        assert main(["ranks", recorded, *changed, "--save", str(tmp_path / name)]) == 0
        assert capsys.readouterr().out.splitlines()[-1] == f"wrote {tmp_path / name}"
        assert (tmp_path / name).exists()
    path = tmp_path / "json" / "job.md"
    assert main(["ranks", recorded, *changed, "--json", "--save", str(path)]) == 0
    said = capsys.readouterr()
    assert "ranks" in json.loads(said.out)
    assert said.err == f"wrote {path}\n"
    assert main(["ranks", recorded, *changed, "--save", str(tmp_path / "other" / "job.docx")]) == 1
    assert "its name ends with '.docx'" in capsys.readouterr().err
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("option", ["--like one=two", "--like 1=1", "--like 1", "--scale x=0", "--link 0", "--link -1", "--link nan",
                                    "--bucket 25", "--bucket all_reduce=25apples", "--bucket all_reduce=0", "--host a"])  # fmt: skip
def test_wrong_values_are_wrong_use_before_a_job_is_read(option, capsys):
    name, value = option.split()
    assert main(["ranks", "no-such-folder", name, value]) == 2
    assert "no-such-folder" not in capsys.readouterr().err


@pytest.mark.parametrize(("option", "message"), [
    ("--like 1=9", "the job has no rank 9"), ("--like 9=1", "the job has no rank 9"),
    ("--bucket al_reduce=1GB", "no matched collective is of the kind 'al_reduce'"),
])  # fmt: skip
def test_names_that_a_job_does_not_have_are_wrong_use(recorded, option, message, capsys):
    assert main(["ranks", recorded, *option.split()]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("name", ["x" * 400, "x" * 400 + ".html"], ids=["a folder", "a file"])
def test_a_name_that_no_file_can_have_is_told(recorded, tmp_path, capsys, name):
    assert main(["ranks", recorded, "--save", str(tmp_path / name)]) == 1
    assert "error: cannot write" in capsys.readouterr().err
