"""What the README and the documentation tell a reader to type is there."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess

import pytest

from streamscope.cli.main import main


@pytest.fixture(scope="module")
def readme(repository):
    return (repository / "README.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def pages(repository, readme):
    return "\n".join([readme, *(page.read_text(encoding="utf-8") for page in (repository / "docs").rglob("*.md"))])


def commands(readme, program):
    """Return the command lines of the shell blocks that start with a program, `$` and comments removed."""
    blocks = re.findall(r"^```(?:console|shell|sh|bash)\n(.*?)^```", readme, flags=re.MULTILINE | re.DOTALL)
    lines = [shlex.split(line.removeprefix("$ "), comments=True) for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    return [line for line in lines if line and line[0].rpartition("/")[2] == program]


def test_make_targets_exist(repository, readme, pages):
    if shutil.which("make") is None:
        pytest.skip("make is not installed")
    assert {"setup", "demo", "test", "lab"} <= {line[1] for line in commands(readme, "make")}
    for line in commands(pages, "make"):
        result = subprocess.run(["make", "--dry-run", *line[1:]], cwd=repository, capture_output=True, text=True, check=False, timeout=60)
        assert result.returncode == 0, f"{shlex.join(line)}: {result.stderr}"


def test_ci_runs_the_test_command_of_the_readme(repository, readme):
    assert ["make", "test"] in commands(readme, "make")
    assert "\nmake test\n" in (repository / ".ci" / "run").read_text(encoding="utf-8")


def test_streamscope_commands_and_options_exist(pages, monkeypatch, capsys):
    pytest.importorskip("typer")
    monkeypatch.setenv("COLUMNS", "200")
    asked = commands(pages, "streamscope")
    assert asked, "the documentation shows no command line"
    for subcommand in {line[1] for line in asked}:
        assert main((subcommand, "--help")) == 0, f"streamscope {subcommand}"
        shown = capsys.readouterr().out
        options = {word.partition("=")[0] for line in asked if line[1] == subcommand for word in line if word.startswith("--")}
        assert {option for option in options if option not in shown} == set()


def test_the_readme_is_short_and_links_to_every_page(repository, readme):
    assert len(readme.splitlines()) <= 90
    for page in (repository / "docs").glob("*.md"):
        assert page.name in ("index.md", "renamed.md") or f"(docs/{page.name})" in readme
