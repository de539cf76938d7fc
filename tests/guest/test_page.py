"""The page on doors shows the files of the package that these tests install."""

from __future__ import annotations

import re
from configparser import ConfigParser
from pathlib import Path

FOLDER = Path(__file__).parent
PAGE = (FOLDER.parents[1] / "docs" / "doors.md").read_text(encoding="utf-8")


def test_each_file_of_the_package_stands_on_the_page():
    shown = re.findall(r"```py\n(.*?)```", PAGE, re.DOTALL)
    for file in sorted((FOLDER / "package" / "steplog").glob("[!_]*.py")):
        assert file.read_text(encoding="utf-8") in shown, f"docs/doors.md does not show {file.name} as it is"


def test_each_line_of_its_pyproject_is_an_entry_point():
    found = ConfigParser()
    found.read(FOLDER / "entry_points.txt")
    shown = {(group, *line.split(" = ")) for group, line in re.findall(r'\[project\.entry-points\."(.+)"\]\n(.+)\n', PAGE)}
    assert shown == {(group, name, f'"{place}"') for group in found.sections() for name, place in found[group].items()}
