"""``streamscope export``: a saved comparison as a document, a picture or a table of spans."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from streamscope.cli.parameters import given_path
from streamscope.cli.terminal import output
from streamscope.files import suffix_of, writable_file
from streamscope.results.result import PICTURES, REPORTS


def export(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", parser=given_path, help="What `streamscope compare --out DIR` wrote.", show_default=False)
    ],
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...",
            parser=given_path,
            help="Each ends with .html, .pdf or .md (report), .json (numbers), .svg or .png (picture), .csv or .parquet (spans), "
            "or .jsonl (metrics).",
            show_default=False,
        ),
    ],
    of: Annotated[
        str, typer.Option("--of", metavar="PICTURE", help="timeline, makespans, speedups, overlaps, launches or memory.")
    ] = "timeline",
) -> None:
    """Write a saved comparison as a document, a picture or a table of spans."""
    from streamscope.comparing.comparison import load_comparison

    for file in files:
        suffix_of(file, *REPORTS, ".json", *PICTURES, ".csv", ".parquet", ".jsonl")
        writable_file(file)
    comparison = load_comparison(folder)
    for file in files:
        if file.suffix.lower() in PICTURES:
            comparison.picture(file, of)
        else:
            comparison.save(file)
        output().print(f"wrote {file}", soft_wrap=True)
