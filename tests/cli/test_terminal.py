"""What commands print: names may hold anything, and the terminal sees nothing but our own colours."""

from __future__ import annotations

import io

import pytest
from rich.table import Table
from rich.text import Text

from streamscope.cli import terminal
from streamscope.cli.main import main

HOSTILE = "\x1b[31mred\x1b]0;title\x07\x08\r"


@pytest.mark.parametrize("arguments", [["compare", HOSTILE], ["compare", "cnn", "--set", HOSTILE], ["--" + HOSTILE], [HOSTILE]])
def test_escapes_in_arguments_are_shown_and_not_sent(arguments, capsys):
    assert main(arguments) != 0
    said = capsys.readouterr()
    assert said.err.startswith("error: ")
    assert not set(said.out + said.err) & set("\x1b\x07\x08\r")


def test_escapes_in_the_name_of_a_folder_are_shown_and_not_sent(tmp_path, capsys):
    folder = tmp_path / HOSTILE
    small = ["--set", "length=3", "--set", "size=16", "--device", "simulated", "--engines", "sync,async", "--repeats", "2"]
    assert main(["compare", "elementwise-chain", *small, "--out", str(folder)]) == 0
    said = capsys.readouterr().out
    assert "�[31mred�]0;title" in said
    assert not set(said) & set("\x1b\x07\x08\r")
    assert (folder / "report.html").is_file()


@pytest.mark.parametrize("console", [terminal.output, terminal.notes])
def test_our_colours_are_sent_and_those_of_names_are_not(console, monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    screen, written = console(), io.StringIO()
    monkeypatch.setattr(screen, "file", written)
    table = Table(HOSTILE)
    table.add_row(Text(HOSTILE, style="bold"))
    screen.print(table)
    screen.print(HOSTILE, Text("ours", style="red"), soft_wrap=True)
    said = written.getvalue()
    assert said.count("�[31mre") == 3
    assert "\x1b[31mours\x1b[0m" in said
    assert said.count("\x1b[31m") == 1
    assert not set(said) & set("\x07\x08\r")


@pytest.mark.parametrize(("forced", "lines"), [("1", ["it takes", "12 µs"]), ("0", ["it takes 12 µs"])])
def test_sentences_fit_a_terminal_and_stay_whole_elsewhere(forced, lines, monkeypatch):
    monkeypatch.setenv("TTY_COMPATIBLE", forced)
    screen, written = terminal.output(), io.StringIO()
    screen.file, screen.width = written, 12
    terminal.print_sentences(screen, "it takes 12 µs", whole=True)
    assert written.getvalue().splitlines() == lines
