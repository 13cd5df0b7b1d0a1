"""The site of these pages: `make docs`. Their Markdown is that of code-hosting pages (CommonMark,
tables, anchors by heading), so nothing in them is for Sphinx, but for the table of contents."""

import dlcpd

project = "dlcpd"
version = release = dlcpd.__version__
extensions = ["myst_parser"]
html_theme = "furo"
html_title = f"dlcpd {version}"
html_show_sphinx = False
html_copy_source = False
myst_heading_anchors = 4  # as deep as headings go; links name them as code-hosting pages do
exclude_patterns = ["*.py"]
smartquotes = False  # what a configuration or a shell takes has straight ones
