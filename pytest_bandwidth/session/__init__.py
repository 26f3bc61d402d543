"""Connect the package to pytest: collect, judge, publish."""
