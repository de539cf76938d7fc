"""The CUDA code of kernels in files: how it is cut into pieces, and how those are filled in."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import streamscope
from streamscope.kernels import cuda
from streamscope.kernels.cuda import fill, pieces

FILES = sorted(path.stem for path in Path(cuda.__file__).parent.glob("*.cuh"))


def test_a_place_is_filled_in_where_it_stands():
    assert fill("$type x = $value;\n", type="int", value=3) == "int x = 3;\n"
    assert fill("${axes}_offset(${most}u) % %0\n", axes="kept", most=7) == "kept_offset(7u) % %0\n"
    with pytest.raises(KeyError, match="value"):
        fill("x = $value;\n", other=1)


def test_a_place_alone_on_its_line_stands_for_whole_lines_indented_as_it_is():
    piece = "{\n    $body\n}\n"
    assert fill(piece, body="a;\nif (b)\n    c;\n") == "{\n    a;\n    if (b)\n        c;\n}\n"
    assert fill(piece, body="a;") == "{\n    a;\n}\n"
    assert fill(piece, body="") == "{\n}\n"
    assert fill(piece, body="\n") == "{\n\n}\n"


def test_what_is_filled_in_is_not_looked_through_for_places():
    assert fill("$code\n", code="$code %(code)s\n") == "$code %(code)s\n"


@pytest.mark.parametrize("file", FILES)
def test_a_file_is_all_pieces_but_for_its_head_and_remarks(file):
    text = Path(cuda.__file__).with_name(f"{file}.cuh").read_text(encoding="utf-8")
    head, _, rest = text.partition("\n//@")
    assert all(line.startswith("//") for line in head.splitlines() if line)
    lines = [line for line in f"//@{rest}".splitlines() if line and not line.startswith("//@")]
    assert [line for piece in pieces(file).values() for line in piece.splitlines() if line] == lines
    assert all(piece.strip() for piece in pieces(file).values())


def test_every_piece_has_a_name_of_its_own():
    for file in FILES:
        text = Path(cuda.__file__).with_name(f"{file}.cuh").read_text(encoding="utf-8")
        assert len(re.findall(r"^//@ \w+:", text, re.MULTILINE)) == len(pieces(file))


def test_the_pieces_are_read_from_a_zip_too(tmp_path):
    package = Path(streamscope.__file__).parent
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        for path in [*package.rglob("*.py"), *package.rglob("*.pyi"), *package.rglob("*.cuh"), *package.rglob("*.txt")]:
            archive.write(path, Path("streamscope", path.relative_to(package)))
    found = f"import sys; sys.path.insert(0, {str(tmp_path / 'all.zip')!r})"
    code = f"{found}; import streamscope.kernels.source as source; print(source.__file__, source.VECTORS)"
    result = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert result.returncode == 0, result.stderr
    assert "all.zip" in result.stdout
    assert "struct alignas(sizeof(E) * W) vector" in result.stdout
