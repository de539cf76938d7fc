"""How Sphinx builds the documentation: `make docs` writes build/docs."""

project = "Streamscope"
html_title = "Streamscope"
extensions = ["myst_parser"]
exclude_patterns = ["conf.py"]
html_theme = "furo"
html_show_copyright = False
myst_heading_anchors = 3  # links to headings are checked, too
nitpicky = True
