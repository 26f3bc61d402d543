"""SARIF for code scanning: what GitHub asks of a file, where results stand, and which there are."""

import json
import re
import shutil
from dataclasses import replace

import jsonschema
import pytest
import run_documents
from hostile import hostile_document
from repositories import git

from pytest_bandwidth.features.exports.forms import render_sarif
from pytest_bandwidth.outcomes.run_findings import hidden_finding, unjudged_finding


def objects(*optional, closed=False, **properties):
    """Return the schema of an object with these properties. closed: other properties are an error."""
    required = [name for name in properties if name not in optional]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": not closed}


def lists(items, **bounds):
    return {"type": "array", "items": items, **bounds}


STRING, TEXT = {"type": "string"}, objects(text={"type": "string", "minLength": 1})
PLACE = objects(
    # of RFC 3986, relative to the repository
    artifactLocation=objects(uri={"pattern": "^[A-Za-z0-9._~%/-]+$"}, uriBaseId={"const": "%SRCROOT%"}, closed=True),
    region=objects(startLine={"type": "integer", "minimum": 1}, closed=True),
    closed=True,
)
LOCATION = objects("id", "message", id={"type": "integer"}, message=TEXT, physicalLocation=PLACE, closed=True)
RULE = objects(id={**STRING, "maxLength": 255}, shortDescription=TEXT, fullDescription=TEXT, help=TEXT, helpUri=STRING)
RESULT = objects(
    "relatedLocations",
    ruleId=STRING,
    level={"enum": ["error", "warning"]},
    message=TEXT,
    locations=lists(LOCATION, minItems=1, maxItems=1),
    relatedLocations=lists(LOCATION),
    partialFingerprints={"type": "object", "additionalProperties": STRING, "minProperties": 1},
    closed=True,
)
DRIVER = objects(name=STRING, version=STRING, informationUri=STRING, rules=lists(RULE))
DETAILS = objects(id={"pattern": "^pytest-bandwidth/[a-z0-9.-]+/$"})
RUN = objects(tool=objects(driver=DRIVER), automationDetails=DETAILS, results=lists(RESULT))
# What the standard and GitHub require of the properties that are used.
FORM = objects(**{"$schema": STRING}, version={"const": "2.1.0"}, runs=lists(RUN, minItems=1, maxItems=1))


@pytest.fixture(autouse=True)
def checkout(tmp_path, monkeypatch):
    """A repository: kernels outside the folder of tests, two of them with the same file name."""
    for name in ("src/copy.cu", "src/twice.cu", "old/twice.cu", "src/kernel.cu", "sub/tests/test_copy.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    git(tmp_path, "init", "-q")
    monkeypatch.chdir(tmp_path / "sub")
    return tmp_path


def checked(document):
    """The one run of the document's SARIF, which has the form."""
    log = json.loads(render_sarif(document))
    jsonschema.validate(log, FORM)
    (run,) = log["runs"]
    rules = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    assert sorted(set(rules)) == rules, "one rule a reason"
    assert {one["ruleId"] for one in run["results"]} == {*rules}
    return run


def place_of(location):
    physical = location["physicalLocation"]
    return f"{physical['artifactLocation']['uri']}:{physical['region']['startLine']}"


def of_run(*rows, findings=(), root="sub"):
    document = run_documents.run_of(*rows, findings=list(findings))
    document["environment"] = {"root": root, "plugin": "0.1.0"}
    return document


def test_a_count_that_rose_stands_at_the_kernels_line_and_names_its_test():
    row = replace(run_documents.counted(), file="tests/test_copy.py", line=12)
    (result,) = checked(of_run(row))["results"]
    assert (result["ruleId"], result["level"]) == ("counts", "error")
    assert result["message"]["text"] == (
        "REGRESSED: 8× more sectors loaded than the baseline\n[test](1): tests/test_copy.py::test_strided"
    )
    assert [*map(place_of, result["locations"])] == ["src/copy.cu:7"]
    (related,) = result["relatedLocations"]
    assert (related["id"], place_of(related)) == (1, "sub/tests/test_copy.py:12")


def test_a_loss_of_time_stands_at_its_test_and_names_the_cause():
    row = next(one for one in run_documents.outcomes(10, failing=1) if one.message)
    (result,) = checked(of_run(row, root="."))["results"]
    first = row.message.splitlines()[0]
    assert result["message"]["text"].splitlines()[:2] == [first, "likely cause: registers 32 → 96"]
    assert place_of(result["locations"][0]) == f"{row.file}:{row.line}"


def test_levels_are_those_of_annotations_and_what_is_expected_to_fail_is_no_result():
    rows = run_documents.outcomes(30, failing=2, unjudged=2)
    failing = [one for one in rows if one.message]
    rows = [replace(one, xfail="a slow driver") if one is failing[0] else one for one in rows]
    found = checked(of_run(*rows))["results"]
    assert [one["level"] for one in found] == ["error", "warning", "warning"]
    strict = checked(of_run(*rows) | {"settings": {"strict": True}})["results"]
    assert [one["level"] for one in strict] == ["error"] * 3
    assert checked(of_run(*run_documents.outcomes(5)))["results"] == []


def test_a_failure_that_a_plugin_hides_is_an_error():
    finding = hidden_finding("tests/test_copy.py::test_a", "its verdict REGRESSED")
    (result,) = checked(of_run(findings=[finding]))["results"]
    assert (result["level"], place_of(result["locations"][0])) == ("error", "sub/tests/test_copy.py:1")


HELP = "https://pytest-bandwidth.readthedocs.io/en/latest/troubleshooting.html#"
FAULT = (
    f"Failed: test_copy.py:9: kernel copy: race: copy.cu:4: thread 1 of block 0 {'…' * 500} (help: {HELP}kernelfault)"
)
COMPILER = (
    "Failed: test_copy.py:9: copy.cu does not compile for sm_90 (NVRTC_ERROR_COMPILATION):\n"
    f'copy.cu(5): error: identifier "j" is undefined\n  in[j]\n     ^\n\n1 error (help: {HELP}kernelerror)'
)


@pytest.mark.parametrize(
    ("said", "rule", "at", "own"),
    [
        (FAULT, "kernelfault", "src/copy.cu:4", 9),
        (COMPILER, "kernelerror", "src/copy.cu:5", 9),
        (FAULT.replace("copy.cu:4", "twice.cu:4"), "kernelfault", "sub/tests/test_copy.py:9", 9),
        (COMPILER.replace("copy.cu", "kernel.cu"), "kernelerror", "sub/tests/test_copy.py:9", 9),
        (FAULT.replace("copy.cu:4", "test_copy.py:4"), "kernelfault", "sub/tests/test_copy.py:4", 9),
        ("ValueError: no data", "failed-unjudged", "sub/tests/test_copy.py:1", 1),
    ],
    ids=["fault", "compiler", "two-files-of-one-name", "text-in-the-test", "triton", "of-the-test"],
)
def test_what_failed_before_it_was_judged_stands_at_the_line_that_it_names(said, rule, at, own):
    (result,) = checked(of_run(findings=[unjudged_finding("tests/test_copy.py::test_a", said)]))["results"]
    assert (result["ruleId"], place_of(result["locations"][0])) == (rule, at)
    assert place_of(result["relatedLocations"][0]) == f"sub/tests/test_copy.py:{own}"
    text, _, test = result["message"]["text"].partition("\n")
    assert test == "[test](1): tests/test_copy.py::test_a"
    assert HELP not in text
    assert said.startswith("ValueError") or re.search(r"thread 1 of block 0|identifier \"j\" is undefined$", text)


def test_a_result_stays_the_same_where_lines_move():
    def known(row, said):
        found = checked(of_run(row, findings=[unjudged_finding("tests/test_copy.py::test_a", said)]))["results"]
        return [one["partialFingerprints"] for one in found]

    row = replace(run_documents.counted(), file="tests/test_copy.py", line=12)
    moved = replace(row, line=13, message=row.message.replace("copy.cu:7", "copy.cu:17"))
    assert row.message != moved.message
    assert known(row, FAULT) == known(moved, FAULT.replace(":4:", ":44:"))
    assert known(row, FAULT) != known(replace(row, key="another"), FAULT)


def test_outside_of_a_repository_results_stand_at_the_tests(tmp_path_factory, monkeypatch):
    monkeypatch.chdir(tmp_path_factory.mktemp("none"))
    row = replace(run_documents.counted(), file="tests/test a#.py", line=12)
    (result,) = checked(of_run(row, root=None))["results"]
    assert place_of(result["locations"][0]) == "tests/test%20a%23.py:12"


def test_a_hostile_run_keeps_the_form():
    assert checked(hostile_document())["results"]


TESTS = """
def run(bandwidth, file, threads=256):
    x, y = bandwidth.random(256, "float32"), bandwidth.empty(256, "float32")
    bandwidth.launch(bandwidth.kernel(f"../kernels/{file}"), 1, threads, (y, x), reads=x, writes=y)

def test_counts(bandwidth):
    run(bandwidth, "scale.cu")

def test_fault(bandwidth):
    run(bandwidth, "scale.cu", threads=512)

def test_compiler(bandwidth):
    run(bandwidth, "broken.cu")
"""


@pytest.mark.in_process
@pytest.mark.usefixtures("inside")
def test_a_run_writes_what_failed_and_where(project):
    project.path.joinpath("kernels").mkdir()
    scale = (
        'extern "C" __global__ void scale(float* y, const float* x)\n{\n    int i = threadIdx.x;\n    y[i] = x[i];\n}\n'
    )
    (project.path / "kernels/scale.cu").write_text(scale)
    (project.path / "kernels/broken.cu").write_text(scale.replace("x[i]", "x[j]"))
    project.file("tests/test_scale.py", TESTS)
    git(project.path, "init", "-q")
    given = ("--bandwidth-device=traffic", "--bandwidth-baseline=baselines/")
    project.run(*given, "--bandwidth-update")
    (project.path / "kernels/scale.cu").write_text(
        scale.replace("int i =", "int i = threadIdx.x / 255 * 255 + 8 * threadIdx.x % 255; //")
    )
    project.run(*given, "--bandwidth-sarif=run.sarif", "--bandwidth-json=run.json")
    written = (project.path / "run.sarif").read_text(encoding="utf-8")
    results = json.loads(written)["runs"][0]["results"]
    assert sorted((one["ruleId"], place_of(one["locations"][0])) for one in results) == [
        ("counts", "kernels/scale.cu:4"),
        ("kernelerror", "kernels/broken.cu:4"),
        ("kernelfault", "kernels/scale.cu:4"),
    ]
    assert render_sarif(project.told()) == written
    project.run(*given, "--bandwidth-sarif=run.sarif")  # its own file may be overwritten
    shutil.copy(project.path / "run.json", project.path / "foreign.sarif")
    assert re.search(r"bandwidth-sarif.*did not write", str(project.run("--bandwidth-sarif=foreign.sarif").errlines))
