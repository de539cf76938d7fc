"""How Sphinx builds the documentation: `make docs` writes build/docs."""

from typing import Any

from sphinx.application import Sphinx

project = "Streamscope"
html_title = "Streamscope"
extensions = ["myst_parser"]
exclude_patterns = ["conf.py"]
html_theme = "furo"
html_show_copyright = False
myst_heading_anchors = 3  # links to headings are checked, too
nitpicky = True


def setup(app: Sphinx) -> None:
    """Wrap long lines of code and of output, which would be cut off at the right."""
    app.connect("html-page-context", _wrap)


def _wrap(_app: Sphinx, _page: str, _template: str, context: dict[str, Any], _tree: object) -> None:
    context["metatags"] = context.get("metatags", "") + "<style>pre { white-space: pre-wrap }</style>"
