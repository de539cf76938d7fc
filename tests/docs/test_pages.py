"""The Python in the documentation runs, and shows what it really gives."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.docs.running import needs_notebook_packages, run_examples

from streamscope.cli.main import main

ROOT = Path(__file__).resolve().parents[2]
TEXTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
COMMANDS = [
    found for page in TEXTS for found in re.findall(r"\$ streamscope (.+)\n((?:.*\n)+?)\.\.\.\n```", page.read_text(encoding="utf-8"))
]
PAGES = [page for page in TEXTS if ">>> " in page.read_text(encoding="utf-8")]


def code_of(page):
    """Return what a page has in its Python blocks, every line where it stands in the page."""
    lines, inside = [], False
    for line in page.read_text(encoding="utf-8").splitlines():
        if line.startswith("```"):
            inside = line == "```python"
        lines.append(line if inside and not line.startswith("```") else "")
    return "\n".join(lines)


@needs_notebook_packages
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_examples_of_a_page_give_what_they_show(page, tmp_path, monkeypatch):
    run_examples(code_of(page), page.name, str(page), {}, tmp_path, monkeypatch)


@pytest.mark.parametrize(("command", "shown"), COMMANDS)
def test_commands_print_what_pages_show(command, shown, capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    assert main(command.split()) == 0
    assert capsys.readouterr().out.startswith(shown)


def test_every_page_with_python_is_run():
    assert {page.name for page in PAGES} >= {"README.md", "getting-started.md", "engines.md", "your-code.md", "formats.md"}
    for page in TEXTS:
        assert page in PAGES or "```python" not in page.read_text(encoding="utf-8"), page


SOUGHT = {
    "several GPUs": "devices",
    "multiple GPUs": "devices",
    "`ss.read`": "getting-started",
    "`ss.diff(a, b).timeline()`": "timeline",
    "Nsight Systems": "getting-started",
    "`layer_norm`": "operators",
    "`gelu`": "names",
    "`conv2d`": "names",
}
"""What readers have looked for and not found, and the page that has it now."""


@pytest.mark.parametrize(("words", "page"), SOUGHT.items())
def test_what_readers_look_for_stands_on_the_page_that_answers_it(words, page):
    """Sphinx's search finds pages by the words in them, and the exact ones first."""
    assert words in (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
