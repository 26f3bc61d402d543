"""The HTML pages: one self-contained file each."""
