"""Make the pictures of docs/gallery.md anew, by the lines that stand above them there.

python scripts/gallery.py
"""

from __future__ import annotations

import doctest
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]


def main() -> None:
    """Run the page's lines in a folder of their own, and take the pictures from there."""
    page = (ROOT / "docs" / "gallery.md").read_text(encoding="utf-8")
    names: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        Path("notebooks").symlink_to(ROOT / "notebooks")
        for example in doctest.DocTestParser().get_examples(page):
            exec(compile(example.source, "docs/gallery.md", "exec"), names)  # noqa: S102 — our own page
        shutil.rmtree(ROOT / "docs" / "gallery", ignore_errors=True)
        (ROOT / "docs" / "gallery").mkdir()
        for picture in Path().glob("*.svg"):
            shutil.copy(picture, ROOT / "docs" / "gallery" / picture.name)


if __name__ == "__main__":
    main()
