"""The plugin's own hooks, implemented in a conftest.py."""

import pytest
from documented import example_of
from user_project import COPY, LINK

pytestmark = [pytest.mark.in_process, pytest.mark.slow, pytest.mark.usefixtures("inside")]

CONFTEST = """
from dataclasses import replace
from pytest_bandwidth.hooks import Column, Judged, JudgedTest

def pytest_bandwidth_environment(environment):
    environment["rack"] = "B7"

def pytest_bandwidth_document(document):
    document["findings"].append({"code": "mine", "text": f"{len(document['results'])} results"})

def pytest_bandwidth_peaks(identity):
    return "200 GB/s" if identity.kind == "cpu" else None

def pytest_bandwidth_judged(config, test: JudgedTest, judged: dict[str, Judged]):
    for key, one in judged.items():
        with test.alone():
            seen = f"{test.nodeid} on {test.identity.kind}"
        judged[key] = replace(one, measurement=one.measurement.with_detail("seen", seen))

def pytest_bandwidth_columns():
    return [Column("seen", "seen", lambda result: result.detail.get("seen"))]
"""


def test_they_change_environment_document_evidence_and_peak_unless_the_ini_file_has_one(project):
    project.file("conftest.py", CONFTEST)
    project.file("test_copy.py", COPY)
    document = project.document("--bandwidth-csv=run.csv")
    assert document["results"][0]["detail"]["seen"] == "test_copy.py::test_copy on cpu"
    assert "test_copy.py::test_copy on cpu" in (project.path / "run.csv").read_text()
    assert document["environment"]["rack"] == "B7"
    assert document["findings"][-1] == {"code": "mine", "text": "1 results"}
    assert document["device"]["peak"] == {"gbps": 200.0, "source": "the hook pytest_bandwidth_peaks"}
    assert document["results"][0]["utilization_of"] == "peak"
    peak = project.document("-o", "bandwidth_peak=300 GB/s")["device"]["peak"]
    assert peak == {"gbps": 300.0, "source": "bandwidth_peak in the ini file"}


OF_COPY = " (test_copy.py::test_copy)"
BREAKS = """
from pytest_bandwidth.hooks import Column

class Full:
    def check(self):
        pass
    def write(self, *_):
        1 / 0

def pytest_bandwidth_environment(environment): raise ValueError('boom')
def pytest_bandwidth_document(document): {document}
def pytest_bandwidth_reporters(): return [Full()]
def pytest_bandwidth_columns():
    pair = Column('pair', 'pair', lambda result: [1])
    none = Column('none', 'none', lambda result: 1, lambda figure: None)
    return [Column('rows', 'rows', lambda result: result.tags['rows']), pair, none]
"""


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ("document['x'] / 0", "conftest.py:11: pytest_bandwidth_document raised KeyError: 'x'"),
        ("document.clear()", "pytest_bandwidth_document removed schema, run_id, *, expected them to stay"),
    ],
)
def test_hooks_that_go_wrong_cost_no_result(project, document, said):
    project.file("conftest.py", BREAKS.format(document=document))
    project.file("test_copy.py", COPY)
    result = project.run("--bandwidth-json=run.json", "--bandwidth-csv=run.csv", "--bandwidth-html=run.html")
    result.assert_outcomes(passed=1)
    written = [f"wrote run.{kind}" for kind in ("json", "csv", "html")]
    whys = (
        "conftest.py:10: pytest_bandwidth_environment raised ValueError: boom",
        said,
        "conftest.py:8: Full.write raised *",
        f"conftest.py:16: the column 'rows' raised KeyError: 'rows', expected None for a result without *{OF_COPY}",
        f"the column 'pair': found the figure [[]1], expected a text, a number or None{OF_COPY}",
        f"the column 'none': found None as text of 1, expected a text{OF_COPY}",
    )
    result.stdout.fnmatch_lines(["1 measured: *", *written, *(f"ERROR: {why}" for why in whys)])
    assert result.ret == 4
    assert project.told()["results"]


REPORTERS = """
from pathlib import Path

class Slowest:
    def check(self):
        pass

    def write(self, document, outcomes, suffix):
        slowest = min(outcomes, key=lambda outcome: outcome.gbps)
        Path("slowest.txt").write_text(f"{slowest.nodeid} {document['schema']} {suffix}")
        return ["slowest.txt"]

def pytest_bandwidth_given(config, options):
    from pytest_bandwidth.hooks import Given

    options.setdefault("csv", Given("made/run.csv", "conftest.py"))
    options.pop("json", None)

def pytest_bandwidth_reporters(config):
    return [Slowest()]

def pytest_bandwidth_finished(config, reports):
    Path("finished.txt").write_text(" ".join(outcome.status for report in reports for outcome in report.outcomes))
"""


def test_they_change_what_was_given_report_and_are_called_at_the_end(project):
    project.file("conftest.py", REPORTERS)
    project.file("test_copy.py", COPY)
    result = project.run("--bandwidth-json=run.json")
    result.stdout.fnmatch_lines(["wrote *made/run.csv", "wrote slowest.txt"])
    assert not (project.path / "run.json").exists()
    assert (project.path / "slowest.txt").read_text() == "test_copy.py::test_copy 1 None"
    assert (project.path / "finished.txt").read_text() == "UNDECIDED"


COLUMN = "from pytest_bandwidth.hooks import Column; return [Column('rows', '', id, "
NPU = "from pytest_bandwidth.hooks import DeviceType; return [DeviceType('cpu', id, 'host', 'npu')]"
FORMAT = "from pytest_bandwidth.hooks import Format; return [Format('txt', id, ' ~', option='mine')]"
OPTION = "from pytest_bandwidth.hooks import option; return type('Own', (), {'rack': option('N', '', str)})"
KEY = "pytest_bandwidth_columns: found the column"
FULL = "return [type('Full', (), {'check': lambda _: 1 / 0, 'write': print})()]"
NO_GPU = "from pytest_bandwidth.hooks import UsageError; raise UsageError(f'found {identity.kind}, expected a GPU')"
DIVIDES = "raised ZeroDivisionError: division by zero"


@pytest.mark.parametrize(
    ("hook", "said"),
    [
        ("columns(): return {'rows': 1}", "pytest_bandwidth_columns: found {'rows': 1}, expected a list of Column: *"),
        (f"columns(): {COLUMN}outputs='csv')]", f"{KEY} 'rows' with outputs='csv', expected a tuple of terminal, *"),
        (f"columns(): {COLUMN})] * 2", f"{KEY} 'rows' twice, expected a key of its own*"),
        (f"columns(): {COLUMN.replace(' id,', ' 1,')})]", f"{KEY} 'rows', expected functions as value and text*"),
        (f"columns(): {COLUMN.replace(chr(39) * 2, 'None')})]", f"{KEY} 'rows', expected texts as key, heading, *"),
        ("columns(): 1 / 0", f"conftest.py:1: pytest_bandwidth_columns {DIVIDES}*"),
        ("given(): 1 / 0", f"conftest.py:1: pytest_bandwidth_given {DIVIDES}{LINK}"),
        (f"devices(): {NPU}", "pytest_bandwidth_devices: found the device 'cpu' twice, expected a kind of its own*"),
        (
            f"devices(): {NPU.replace('cpu', 'tpu')}",
            "pytest_bandwidth_devices: found the device 'tpu' with usage='npu', expected forms of its kind, *",
        ),
        (f"formats(): {FORMAT}", "the format 'txt': found no option --mine, expected pytest_addoption to add it*"),
        (f"formats(): {FORMAT.replace(' ~', ' (')}", "conftest.py:1: pytest_bandwidth_formats raised *: missing ), *"),
        (f"options(): {OPTION}", "pytest_bandwidth_options: found --bandwidth-rack in a conftest.py, *"),
        ("reporter(): return []", "*conftest.py: found the hook pytest_bandwidth_reporter, expected *_reporters*"),
        ("formats(): return ['md']", "pytest_bandwidth_formats: found 'md' in its list, expected a list of Format: *"),
        ("reporters(): return ['a']", "pytest_bandwidth_reporters: found 'a' without check and write, expected *"),
        ("given(options): options['csv'] = 'a'", "pytest_bandwidth_given: found csv = 'a', expected a Given: *"),
        ("peaks(): raise OSError('none')", f"conftest.py:1: pytest_bandwidth_peaks raised OSError: none{LINK}"),
        (f"reporters(): {FULL}", f"conftest.py:1: Full.check {DIVIDES}{LINK}"),
        (f"start(identity): {NO_GPU}", f"found cpu, expected a GPU{LINK}"),
    ],
)
def test_a_hook_that_goes_wrong_before_any_test_ends_the_run_in_one_line(project, hook, said):
    project.file("conftest.py", f"def pytest_bandwidth_{hook}\n")
    project.file("test_copy.py", COPY)
    result = project.run()
    assert result.ret == 4
    result.stderr.fnmatch_lines([f"ERROR: {said}"])
    assert "Traceback" not in result.stderr.str() + result.stdout.str()
    assert "INTERNALERROR" not in result.stderr.str() + result.stdout.str()
    if hook.startswith("start"):
        project.run("--bandwidth-disable").assert_outcomes(passed=1)


@pytest.mark.parametrize(
    ("hook", "said"),
    [
        ("judged(judged): judged.update(dict.fromkeys(judged, 3))", "pytest_bandwidth_judged: left 3 in *"),
        (
            "judged(judged): [one.measurement.detail.update(own=judged) for one in judged.values()]",
            "detail: found 'own': *, expected what JSON supports *",
        ),
        ("watch(): 1 / 0", f"conftest.py:1: pytest_bandwidth_watch {DIVIDES}"),
        ("watch(): return 3", "*: pytest_bandwidth_watch: found 3 in its list, expected a list of Watch: return that"),
        ("frameworks(): return {'numpy': repr}", "*: pytest_bandwidth_frameworks: found *, expected a Framework"),
    ],
)
def test_a_hook_that_goes_wrong_in_a_test_fails_it_in_one_line(project, hook, said):
    project.file("conftest.py", f"def pytest_bandwidth_{hook}\n")
    project.file("test_copy.py", COPY)
    result = project.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([f"{said}{LINK}"])
    assert "conftest.py:1: conftest.py:1:" not in result.stdout.str()


def test_hooks_that_only_a_worker_reads_are_an_error(project):
    project.file("conftest.py", "")
    project.file("gpu/conftest.py", REPORTERS)
    project.file("gpu/test_copy.py", COPY)
    result = project.run("-n1")
    result.assert_outcomes(passed=1)
    said = "was not called, since workers alone read this file: move it to the rootdir's"
    names = [f"ERROR: gpu/conftest.py: pytest_bandwidth_{name} {said}" for name in ("finished", "reporters")]
    result.stdout.fnmatch_lines(names)
    assert result.ret == 4
    assert project.run("-n1", "gpu").ret == 0
    assert (project.path / "slowest.txt").exists()


EMPTY = """
from pytest_bandwidth.hooks import Format
def pytest_addoption(parser):
    parser.addoption("--mine")
def pytest_bandwidth_formats():
    return [Format("txt", id, "x", option="mine")]
"""


@pytest.mark.parametrize(
    ("of_option", "given", "found"), [("", "--mine=", "''"), (", action='store_true'", "--mine", "True")]
)
def test_an_option_of_a_format_without_a_name_is_an_error(project, of_option, given, found):
    project.file("conftest.py", EMPTY.replace('"--mine"', f'"--mine"{of_option}'))
    project.file("test_copy.py", COPY)
    result = project.run(given)
    result.stderr.fnmatch_lines(
        [f"ERROR: the format 'txt': found --mine as {found}, expected the name of a file, or *"]
    )
    assert result.ret == 4


SUMS = """
import numpy as np

def test_sums(bandwidth):
    x = np.ones(1 << 16)
    bandwidth(lambda: float(x.sum()), reads=x, label="right")
    bandwidth(lambda: float(x.sum() * np.nan), reads=x, label="wrong")
"""


def test_the_example_of_watch_finds_what_samples_return(project):
    project.file("conftest.py", example_of("watch"))
    project.file("test_sums.py", SUMS)
    results = project.document()["results"]
    assert [(row["label"], row["status"]) for row in results] == [("right", "UNDECIDED"), ("wrong", "MISMATCH")]
    assert (results[1]["reason_code"], results[1]["reason"]) == ("work:not-a-number", "it returned NaN")


def test_the_examples_of_column_format_and_reporter_run(project):
    examples = map(example_of, ("columns", "formats", "reporters"))
    project.file("conftest.py", "\n".join(examples))
    project.file("test_copy.py", COPY + "    bandwidth.tags.update(rows=np.int64(1234), width=np.float32(0.5))\n")
    result = project.run("--team-report=team.txt", "--bandwidth-csv=run.csv")
    assert result.ret == 4
    result.stderr.fnmatch_lines(["ERROR: found no folder shares, expected one: mkdir shares*"])
    (project.path / "shares").mkdir()
    result = project.run("--team-report=team.txt", "--bandwidth-csv=run.csv", "--bandwidth-json=run.json")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["* 1,234*", "wrote team.txt", "wrote *lowest-device.txt"])
    assert (project.path / "team.txt").read_text().startswith("Slowest first\n- test_copy.py::test_copy: ")
    assert project.told()["results"][0]["tags"] == {"rows": 1234, "width": 0.5}


NO_TEXT = """
from pytest_bandwidth.hooks import Format
class Quiet:
    def check(self): pass
    def write(self, *_): pass
def pytest_addoption(parser): parser.addoption('--mine')
def pytest_bandwidth_reporters(): return [Quiet()]
def pytest_bandwidth_formats(): return [Format('md', lambda document: 3, begins='#', option='mine')]
def pytest_bandwidth_document(document): document['mine'] = object()
"""


def test_what_hooks_return_that_cannot_be_written_is_one_line_each(project):
    project.file("conftest.py", NO_TEXT)
    project.file("test_copy.py", COPY)
    result = project.run("--mine=run.md", "--bandwidth-json=run.json")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["ERROR: run.json was not written: *not JSON serializable*"])
    format_said = "ERROR: run.md was not written: the format 'md' returned 3, expected text or bytes"
    result.stdout.fnmatch_lines([format_said, "ERROR: Quiet.write: found None, expected a list of names of files: *"])
    assert result.ret == 4
    assert not (project.path / "run.json").exists()
