"""Sphinx: the pages of this directory as a site, each as it is read on its own."""

from __future__ import annotations

project = "f2tools"
extensions = ["myst_parser"]
html_theme = "furo"
html_title = "f2tools"
html_copy_source = False
html_show_sphinx = False
exclude_patterns = ["conf.py"]
# links to headings are written as GitHub makes them
myst_heading_anchors = 4
# what is written here is no dialect: examples hold $, {, ~ and tables as they are
myst_enable_extensions: list[str] = []
highlight_language = "none"
