"""`cold=False`: caches are left as they are, the row says so, and a cold baseline does not fit."""

import pytest
from user_project import COPY

MARKED = COPY.replace("def test_copy", "import pytest\n\n@pytest.mark.bandwidth(cold=False)\ndef test_copy")
SAID = COPY.replace("writes=b)", "writes=b, cold=False)")


pytestmark = pytest.mark.usefixtures("inside")


@pytest.fixture
def cold(project):
    """Return a project with a baseline of cold caches."""
    project.file("test_copy.py", COPY)
    project.run("--bandwidth-baseline=b.yaml", "--bandwidth-update").assert_outcomes(passed=1)
    return project


@pytest.mark.parametrize("text", [MARKED, SAID], ids=["marker", "argument"])
def test_warm_figures_do_not_fit_a_cold_baseline_and_say_that_they_are_warm(cold, text):
    cold.file("test_copy.py", text)
    result = cold.run("--bandwidth-baseline=b.yaml")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*MISMATCH: method is clock+warm, was clock"])
    result.stdout.fnmatch_lines(["*measured *moved 524 kB in *, warm: *"])
    result.stdout.fnmatch_lines(["NOTE *: cold=False: caches are not flushed before its samples*"])
    cold.run("--bandwidth-baseline=b.yaml", "--bandwidth-update")
    cold.run("--bandwidth-baseline=b.yaml").assert_outcomes(passed=1)


def test_it_is_true_or_false(project):
    project.file("test_copy.py", COPY.replace("writes=b)", "writes=b, cold=0)"))
    result = project.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*cold=0, expected True or False*"])
