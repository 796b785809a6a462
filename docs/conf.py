"""Sphinx configuration; ``make docs`` builds the site with warnings as errors."""

import sys
from importlib.metadata import version as _version
from pathlib import Path

project = "rocketstore"
author = "the rocketstore developers"
release = _version("rocketstore")
version = release

sys.path.insert(0, str(Path(__file__).parent / "_ext"))
extensions = [
    "command_options",
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
]
source_suffix = {".md": "markdown"}
root_doc = "index"
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3

autodoc_default_options = {"members": True, "show-inheritance": True}
autodoc_typehints = "signature"
autodoc_member_order = "bysource"
# Cython writes its own signatures into docstrings.
autodoc_docstring_signature = True
napoleon_google_docstring = False
napoleon_use_ivar = True
napoleon_use_rtype = False

# Types in docstrings are words; "topic" names an attribute of several classes.
suppress_warnings = ["ref.python"]

html_theme = "furo"
html_title = f"rocketstore {release}"
html_copy_source = False
