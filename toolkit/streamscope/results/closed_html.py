"""A check of HTML that other packages add: whether it closes its elements and comments, so that the rest of the page stays as it is."""

from __future__ import annotations

from html.parser import HTMLParser

_VOID = frozenset(["area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"])
"""Elements that have no end."""
_FOREIGN = frozenset(("svg", "math"))
"""In these, ``<path/>`` is closed. Elsewhere the slash says nothing."""
_END = "end-of-the-view"


def unclosed(html: str) -> str:
    """Say which element, comment, tag or script is the first one without an end; nothing if all have theirs.

    Examples
    --------
    >>> from streamscope.results.closed_html import unclosed
    >>> unclosed("<div><p>one<br>two</p></div>"), unclosed("<div><p>one</div>"), unclosed("one <!-- two")
    ('', '<p> is not closed', 'a comment, tag or script has no end')
    """
    parser = _Parser()
    parser.feed(f"{html}</{_END}>")
    return parser.found or ("" if parser.ended else "a comment, tag or script has no end")


class _Parser(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found, self.ended = "", False
        self._open: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag not in _VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: object) -> None:
        if tag not in _FOREIGN and _FOREIGN.isdisjoint(self._open):
            self.handle_starttag(tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        due = self._open.pop() if self._open else _END
        self.ended = self.ended or tag == _END
        if tag != due and not self.found:
            self.found = f"</{tag}> has no start" if due == _END else f"<{due}> is not closed"
