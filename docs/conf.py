"""How `make site` builds the documentation. No page asks another host for anything."""

project = "Corral"
copyright = "the authors of Corral, Apache-2.0"
extensions = ["myst_parser"]
html_theme = "furo"
html_title = "Corral"
html_show_sphinx = False
html_copy_source = False
html_show_sourcelink = False
exclude_patterns = ["parts", "__pycache__"]
source_suffix = {".md": "markdown"}
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3
# Files of the checkout that pages link to (deploy/, benchmarks/) are no pages of the site.
suppress_warnings = [
    "myst.xref_missing",
    "misc.highlighting_failure",
    "toc.not_included",
]
