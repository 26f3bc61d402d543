"""Build the site with Sphinx: `make docs`. Pages are Markdown (MyST) that GitHub shows as well."""

import runpy
from pathlib import Path

import pytest_bandwidth

HERE = Path(__file__).resolve().parent
runpy.run_path(str(HERE / "reference_tables.py"))["write_reference"](HERE / "_generated")

project = "pytest-bandwidth"
author = "The pytest-bandwidth authors"
copyright = "The pytest-bandwidth authors"
version = release = pytest_bandwidth.__version__

extensions = ["myst_parser"]
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3
exclude_patterns = ["_build", "_generated"]
nitpicky = True
# Options keep their two dashes.
smartquotes = False

html_theme = "furo"
html_title = "pytest-bandwidth"
# No page loads anything from elsewhere.
html_theme_options = {"top_of_page_buttons": []}
