"""An advice as a page: the verdict, the picture, and the costs that it rests on, in one file without scripts."""

from __future__ import annotations

from html import escape
from pathlib import Path

from streamscope.advising.advice import Advice
from streamscope.analysis.table import device_words
from streamscope.errors import printable
from streamscope.files import written_whole
from streamscope_widgets import report_page

PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">
<title>{title}</title>
<style>{style} details, div {{ max-width: none !important; }}</style>
</head>
<body>{body}</body>
</html>
"""


def advice_page(advice: Advice, path: Path) -> Path:
    """Write an advice to one HTML file that needs no network, and return its path.

    Raises
    ------
    OutputError
        The file cannot be written.
    """
    title = f"What pays · {device_words(advice.costs.device)}"
    with written_whole(path) as temporary:
        content = PAGE.format(title=printable(escape(title)), style=report_page.STYLE, body=printable(advice._repr_html_()))
        temporary.write_text(content, encoding="utf-8")
    return path
