"""`pytest-bandwidth baseline show | validate | diff | prune | init` on real files."""

import json
import re
from dataclasses import replace

import pytest
from baseline_files import write_baseline
from run_documents import GPU, outcome, run_of, save, saved

from pytest_bandwidth import baseline as baseline_files
from pytest_bandwidth.cli.baseline import MOST_DIFF_LINES
from pytest_bandwidth.domain.baseline import Baseline, BaselineDevice, Entry, Run
from pytest_bandwidth.domain.code.ptx_normal_form import ptx_digest
from pytest_bandwidth.domain.code.stored_kernel import MOST_LINES
from pytest_bandwidth.domain.verdict import Rule, Status
from pytest_bandwidth.judging.decide import decide_stored
from pytest_bandwidth.judging.stored import reference_of

COPY, TRIAD, SUM = "tests/test_a.py::test_copy[1024]", "tests/test_a.py::test_triad", "tests/test_b.py::test_sum @ all"
DEVICE = BaselineDevice(GPU.name, GPU.memory_gib, GPU.kind)


def entry(key, *gbps, **more):
    runs = tuple(Run(gbps=g, probe_gbps=900.0, relative=g / 900, at="2026-01-02T03:04:05Z") for g in gbps)
    return Entry(key, gbps=gbps[0], judged_on="relative", bytes_read=4096, bytes_written=4096, runs=runs, **more)


def write(path, *entries, device=DEVICE, tolerance=None):
    write_baseline(path, Baseline(device, {e.key: e for e in entries}, tolerance))
    return path


@pytest.fixture
def baseline(tmp_path):
    return write(
        tmp_path / "gpu.yaml",
        entry(COPY, 800.0, 802.0, 798.0, 801.0, 799.0),
        entry(TRIAD, 700.0),
        Entry(SUM, gbps=500.0, tolerance=0.2, xfail="known to be slow"),
        tolerance=0.03,
    )


def shown(command, path, *patterns):
    return json.loads(command("baseline", "show", path, *patterns, "--json").out)["files"][0]["entries"]


def test_show_lists_what_each_entry_knows(command, baseline):
    said = command("baseline", "show", baseline)
    assert (said.status, said.err) == (0, "")
    rows = {line.split("  ")[0]: line for line in said.out.splitlines()}
    assert {COPY, TRIAD, SUM} <= rows.keys()
    assert re.search(r"\b800\b.*relative.*\b5\b.*3\.0 %.*2026-01-02T03:04:05Z", rows[COPY])
    assert re.search(r"500.*gbps.*by hand.*20\.0 %.*known to be slow", rows[SUM])
    assert "Imaginary GPU, 64 GiB, 3 entries, tolerance 3.0 %" in said.out
    assert "1 of 3 are too noisy for their tolerance: --bandwidth-update -o bandwidth_runs=6 adds runs" in said.out
    heading, *aligned = said.out.splitlines()[1:5]
    column = heading.index("GB/s") + len("GB/s")
    assert all(row[:column].endswith(gbps) for row, gbps in zip(aligned, ("800", "700", "500"), strict=True))


def test_show_tells_the_code_by_which_entries_are_equal(command, tmp_path):
    codes = ({"sass": "a" * 32, "ptx": "b" * 32}, {"function": "c" * 32}, {})
    entries = [replace(entry(key, 800.0), code=code) for key, code in zip((COPY, TRIAD, SUM), codes, strict=True)]
    counted = Entry("t.py::counted", counts={"load_sectors": 8}, method="ptx", code={"sass": "a" * 32, "ptx": "b" * 32})
    path = write(tmp_path / "a.yaml", *entries, counted)
    said = command("baseline", "show", path)
    said_of = {line.split("  ")[0]: line.rstrip().split("  ")[-1].strip() for line in said.out.splitlines()}
    assert [said_of[key] for key in (COPY, TRIAD, "t.py::counted")] == ["a" * 8, "c" * 8, "b" * 8]
    assert [one["code"] for one in shown(command, path)] == [*codes, counted.code]


def test_an_entrys_own_spread_is_not_one_of_the_others_and_its_anchor_is_its_own(command, tmp_path):
    anchor = Run(gbps=800.0, relative=800 / 900)
    noisy, steady = entry(COPY, 780.0, 784.0, 776.0, anchor=anchor), entry(TRIAD, *(700.0,) * 5)
    alone, beside = write(tmp_path / "alone.yaml", noisy), write(tmp_path / "beside.yaml", noisy, steady)
    (seen,) = shown(command, alone)
    assert seen["detects"] == shown(command, beside)[0]["detects"]
    assert seen["since_anchor"] == pytest.approx(782 / 800 - 1, rel=1e-3)
    assert "-2.2 %" in command("baseline", "show", alone).out


@pytest.mark.parametrize(
    ("runs", "advised"),
    [((700.0, 900.0, 800.0), None), ((800.0, 800.0), 5), ((), 5)],
    ids=["hopelessly noisy", "too few", "by hand"],
)
def test_show_and_the_verdict_give_the_same_spread_and_advice(command, tmp_path, runs, advised):
    one = entry(COPY, *runs) if runs else Entry(COPY, gbps=800.0)
    path = write(tmp_path / "a.yaml", one, tolerance=0.03)
    reference = reference_of(one, "relative" if runs else "gbps", on_host=False)
    decision = decide_stored(reference, reference.value, (), 0.03, 3, None)
    assert (decision.status, decision.rule) == (Status.UNDECIDED, Rule.TOO_NOISY)
    (seen,) = shown(command, path)
    assert seen["spread"] == pytest.approx(decision.numbers.spread, rel=1e-3)
    assert seen["detects"] == (pytest.approx(decision.numbers.detects, rel=1e-3) if len(runs) > 1 else None)
    assert (seen["runs_advised"], decision.facts["runs_needed"]) == (advised, advised if runs else None)
    said = command("baseline", "show", path).out
    assert f"  {100 * decision.numbers.spread:.2f} %  " in said
    if advised is None:
        assert said.endswith("even 20 runs are not enough: raise the tolerance or quiet the machine\n")
    else:
        assert said.endswith(f"--bandwidth-update -o bandwidth_runs={advised} adds runs\n")


def test_show_takes_patterns_in_which_brackets_are_brackets(command, baseline):
    def keys(*patterns):
        return [entry["key"] for entry in shown(command, baseline, *patterns)]

    assert keys("*[1024]") == [COPY]
    assert keys(SUM, "*triad") == [TRIAD, SUM]
    assert keys("tests/test_?.py::*") == [COPY, TRIAD, SUM]


def test_validate_lists_every_problem_of_every_path_also_where_one_is_missing(command, baseline, tmp_path):
    """A path that is not there kept the others' problems, and that they are none, to itself."""
    bad, nope, empty = (tmp_path / name for name in ("bad.yaml", "nope", "empty"))
    empty.mkdir()
    bad.write_text("schema: 2\ntests:\n  a: {bandwidth: fast}\n  b: {tolerance: 5}\n", encoding="utf-8")
    paths = (baseline, bad, nope, empty)
    assert [command("baseline", "validate", path).status for path in paths] == [0, 2, 2, 2]
    said = command("baseline", "validate", *paths)
    assert (said.status, said.err) == (2, "")
    valid, third, fourth, *missing = said.out.splitlines()
    assert valid == f"{baseline}: valid, 3 entries, Imaginary GPU"
    assert re.match(rf"{bad}:3: .*fast", third)
    assert re.match(rf"{bad}:4: .*'5'", fourth)
    none = "found no such file, or a folder without .yaml files, expected baselines"
    assert missing == [f"{nope}: {none}", f"{empty}: {none}"]
    plain = json.loads(command("baseline", "validate", "--json", *paths).out)
    assert (plain["schema"], plain["valid"]) == (1, False)
    assert [file["valid"] for file in plain["files"]] == [True, False, False, False]
    assert [problem["line"] for file in plain["files"] for problem in file["problems"]] == [3, 4, None, None]


@pytest.mark.usefixtures("baseline")
def test_validate_finds_two_files_of_one_device(command, tmp_path):
    write(tmp_path / "twin.yaml", entry(SUM, 300.0))
    said = command("baseline", "validate", tmp_path)
    assert said.status == 2
    assert "gpu.yaml: valid" in said.out
    assert "twin.yaml:2: found the device 'Imaginary GPU', expected it in one file only" in said.out
    # Given as files they do not meet in one run.
    assert command("baseline", "validate", *tmp_path.glob("*.yaml")).status == 0


@pytest.mark.parametrize("action", ["show", "prune"])
def test_bad_file_is_one_line_that_tells_of_the_others(command, tmp_path, action):
    bad = tmp_path / "bad.yaml"
    bad.write_text("schema: 2\ntests:\n  a: {bandwidth: fast}\n  b: {tolerance: 5}\n", encoding="utf-8")
    said = command("baseline", action, bad, "a")
    assert said.status == 2
    assert said.out == ""
    more, link = r"\(and 1 more: `.* validate` lists them\)", r"\(help: \S+#baselineerror\)"
    assert re.fullmatch(rf"pytest-bandwidth baseline: {bad}:3: .*{more} {link}\n", said.err)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ("show nope", "pytest-bandwidth baseline: nope: found no such file"),
        ("diff nope nope", "pytest-bandwidth baseline: nope: found no such file"),
        ("show BASELINE *[0-9]*", "found no entry like '*[0-9]*', expected a key or a pattern with * and ?"),
        ("diff BASELINE FOLDER", "found a file and a folder, expected two files or two folders"),
        ("prune BASELINE", "found nothing to remove"),
        ("prune BASELINE no-such-key", "found no entry like 'no-such-key'"),
        ("init FOLDER/x.yaml --device cuda:9999", ""),
    ],
)
def test_what_cannot_be_done_is_one_line_and_changes_nothing(command, baseline, arguments, problem):
    before = {file: file.read_bytes() for file in baseline.parent.iterdir()}
    said = command(
        "baseline", *arguments.replace("BASELINE", str(baseline)).replace("FOLDER", str(baseline.parent)).split()
    )
    assert (said.status, said.out, len(said.err.splitlines())) == (2, "", 1)
    assert problem in said.err
    assert {file: file.read_bytes() for file in baseline.parent.iterdir()} == before


def one_diff(said):
    (found,) = json.loads(said.out)["files"]
    return found


def test_diff_of_folders_compares_the_files_of_each_device(command, tmp_path):
    old, new = tmp_path / "old", tmp_path / "new"
    for folder in (old, new):
        folder.mkdir()
        write(folder / "same.yaml", entry(COPY, 800.0))
    write(old / "gone.yaml", entry(SUM, 500.0))
    write(new / "came.yaml", entry(TRIAD, 700.0))
    said = command("baseline", "diff", old, new)
    assert said.status == 1
    shown = [line for line in said.out.splitlines() if ".yaml" in line or line[:1] in "+-"]
    assert [re.sub(r"\s{2,}.*", "", line) for line in shown] == [
        f"none → {new}/came.yaml",
        f"+ {TRIAD}",
        f"{old}/gone.yaml → none",
        f"- {SUM}",
        f"{old}/same.yaml → {new}/same.yaml",
        f"{old}/same.yaml and {new}/same.yaml have the same entries",
    ]
    plain = json.loads(command("baseline", "diff", old, new, "--json").out)["files"]
    assert [(one["old"], one["new"]) for one in plain][:2] == [
        (None, f"{new}/came.yaml"),
        (f"{old}/gone.yaml", None),
    ]
    assert command("baseline", "diff", old, old).status == 0


def test_diff_tells_what_was_added_removed_and_changed(command, baseline, tmp_path):
    new = write(
        tmp_path / "new.yaml",
        entry(COPY, 720.0, 722.0, 718.0, tolerance=0.1),
        entry(TRIAD, 700.0),
        entry("tests/test_c.py::test_new", 100.0),
        tolerance=0.05,
    )
    said = command("baseline", "diff", baseline, new)
    assert said.status == 1
    lines = said.out.splitlines()
    assert lines[0] == "tolerance: 0.03 → 0.05"
    changed = next(line for line in lines if line.startswith(f"~ {COPY}"))
    assert re.search(r"800 +720 +-10\.0 % +5 → 3 +of_probe 88.9 % → 80 %; tolerance none → 10 %$", changed)
    assert re.search(rf"^- {re.escape(SUM)} +500 +0$", said.out, re.MULTILINE)
    assert re.search(r"^\+ tests/test_c.py::test_new +100 +1$", said.out, re.MULTILINE)
    assert lines[-1] == "1 added, 1 removed, 1 changed"
    found = one_diff(command("baseline", "diff", baseline, new, "--json"))
    assert found["header"] == {"tolerance": [0.03, 0.05]}
    assert {e["key"]: e["kind"] for e in found["entries"]} == {
        COPY: "changed",
        SUM: "removed",
        "tests/test_c.py::test_new": "added",
    }
    assert found["entries"][0]["change"] == pytest.approx(-0.1)
    assert found["entries"][0]["fields"] == {"of_probe": ["88.9 %", "80 %"], "tolerance": [None, "10 %"]}


WIDE = ".version 9.5\n.target sm_90\n.visible .entry k()\n{\nld.global.v4.f32 {%f1, %f2, %f3, %f4}, [%rd1];\nret;\n}\n"
NARROW = WIDE.replace("v4.f32 {%f1, %f2, %f3, %f4}", "f32 %f1")
CODES = {text: {"ptx": ptx_digest(text), "sass": ptx_digest(text), "launch": "b" * 32} for text in (WIDE, NARROW)}


def coded(folder, code, *keys, ptx=()):
    """A baseline in a folder of its own, whose entries are of that code; ptx: what lies beside it."""
    (folder / "code").mkdir(parents=True)
    for text in ptx:
        (folder / "code" / f"{ptx_digest(text)}.ptx").write_text(text)
    return write(folder / "gpu.yaml", *(replace(entry(key, 800.0), code=code) for key in keys))


@pytest.mark.parametrize("beside", ["each", "old", "new"])
def test_diff_shows_whose_code_changed_and_how(command, tmp_path, beside):
    """The PTX lies beside each file, or all of it beside one, as where OLD is a copy from git."""
    places = {"each": ([WIDE], [NARROW]), "old": ([WIDE, NARROW], []), "new": ([], [WIDE, NARROW])}[beside]
    old = coded(tmp_path / "a", CODES[WIDE], COPY, TRIAD, SUM, ptx=places[0])
    new = coded(tmp_path / "b", CODES[NARROW], COPY, TRIAD, SUM, ptx=places[1])
    write(new, *(replace(entry(k, 800.0), code=CODES[WIDE if k == SUM else NARROW]) for k in (COPY, TRIAD, SUM)))
    said = command("baseline", "diff", old, new)
    assert (said.status, said.err) == (1, "")
    assert re.search(rf"^~ {re.escape(COPY)} .*  code changed$", said.out, re.MULTILINE)
    assert ptx_digest(WIDE) not in said.out
    shown = said.out.splitlines()
    accesses = "in its code, loads of 32 bits 0 → 1, loads of 128 bits 1 → 0"
    start = shown.index(f"code of {COPY}, {TRIAD}: the kernel's code changed; {accesses}")
    changed = [line.strip() for line in shown[start + 1 : -1] if line.strip()[0] in "+-"]
    assert changed == ["- ld.global.v4.f32 {%f1, %f2, %f3, %f4}, [%rd1];", "+ ld.global.f32 %f1, [%rd1];"]
    assert shown[-1] == "0 added, 0 removed, 2 changed"
    plain = one_diff(command("baseline", "diff", old, new, "--json"))["entries"]
    assert [one["key"] for one in plain] == [COPY, TRIAD]
    for one in plain:
        assert one["code_changes"] == ["the kernel's code changed", accesses]
        assert "+ ld.global.f32 %f1, [%rd1];" in one["code_diff"].splitlines()
        assert one["code_unknown"] is None
        assert ptx_digest(WIDE) in one["fields"]["code"][0]


def test_diff_says_why_a_change_of_code_cannot_be_shown(command, tmp_path):
    old, new = coded(tmp_path / "a", CODES[WIDE], COPY), coded(tmp_path / "b", CODES[NARROW], COPY, ptx=[NARROW])
    said = command("baseline", "diff", old, new)
    name = re.escape(f"{ptx_digest(WIDE)}.ptx")
    reason = f"the code changed; the changes cannot be shown: found no .*{name}, commit it with the baseline"
    assert said.status == 1
    assert f"code of {COPY}: the kernel's code changed" in said.out.splitlines()
    assert re.search(rf"^  {reason}$", said.out, re.MULTILINE)
    (plain,) = one_diff(command("baseline", "diff", old, new, "--json"))["entries"]
    assert (plain["code_changes"], plain["code_diff"]) == (["the kernel's code changed"], "")
    assert re.fullmatch(reason, plain["code_unknown"])


def test_diff_tells_of_code_that_changed_without_its_ptx(command, tmp_path):
    changed = CODES[WIDE] | {"launch": "c" * 32}
    old, new = coded(tmp_path / "a", CODES[WIDE], COPY), coded(tmp_path / "b", changed, COPY)
    shown = command("baseline", "diff", old, new).out.splitlines()
    assert shown[-2].startswith(f"code of {COPY}: the launch changed: ")


def test_diff_of_code_from_anywhere_is_harmless_on_a_terminal(command, tmp_path):
    hostile = WIDE.replace("ret;", "ret; \x1b]0;owned\x07 \u202e")
    code = {**CODES[WIDE], "ptx": ptx_digest(hostile), "sass": "c" * 32}
    old, new = coded(tmp_path / "a", CODES[WIDE], COPY, ptx=[WIDE]), coded(tmp_path / "b", code, COPY, ptx=[hostile])
    said = command("baseline", "diff", old, new)
    (added,) = [line for line in said.out.splitlines() if line.startswith("  + ")]
    assert added.isprintable()
    assert added.startswith("  + ret; ")
    (plain,) = one_diff(command("baseline", "diff", old, new, "--json"))["entries"]
    assert "+ ret; \x1b]0;owned\x07 \u202e" in plain["code_diff"].split("\n")


def test_diff_of_much_code_is_bounded(command, tmp_path):
    bodies = [WIDE.replace("ret;", f'.pragma "{n}";\n' * 300 + "ret;") for n in range(6)]
    keys = [f"t.py::test_{n}" for n in range(3)]
    files = []
    for name, texts in (("a", bodies[:3]), ("b", bodies[3:])):
        path = coded(tmp_path / name, {}, ptx=texts)
        coding = ({**CODES[WIDE], "ptx": ptx_digest(text), "sass": ptx_digest(text)} for text in texts)
        rows = (replace(entry(key, 800.0), code=code) for key, code in zip(keys, coding, strict=True))
        files.append(write(path, *rows))
    shown = command("baseline", "diff", *files).out.splitlines()
    assert sum(line.startswith("code of ") for line in shown) == 3
    assert sum(line.startswith("  ") for line in shown) == MOST_DIFF_LINES + 3
    assert shown[-2] == f"  … {MOST_LINES + 1} more lines, which --json shows"
    plain = one_diff(command("baseline", "diff", *files, "--json"))["entries"]
    assert [len(one["code_diff"].splitlines()) for one in plain] == [MOST_LINES + 1] * 3


def test_prune_dry_run_changes_nothing(command, baseline):
    before = baseline.read_bytes()
    said = command("baseline", "prune", baseline, "tests/test_a*", "--dry-run")
    assert said.out.startswith(f"baseline {baseline}: would remove 2, 1 stay\n")
    found = json.loads(command("baseline", "prune", baseline, "tests/test_a*", "--dry-run", "--json").out)
    assert found["dry_run"] is True
    assert found["files"] == [{"path": str(baseline), "removed": [COPY, TRIAD], "kept": 1, "code_removed": 0}]
    assert baseline.read_bytes() == before


@pytest.mark.parametrize(
    ("patterns", "runs", "left"),
    [
        ((), [[outcome(TRIAD, 700.0)], [outcome(SUM, 500.0)]], [TRIAD, SUM]),
        (("tests/test_a*",), [[outcome(TRIAD, 700.0)]], [TRIAD, SUM]),  # where both hold
        # A busy host is no reason to forget a test.
        ((), [[outcome(TRIAD, 700.0), outcome(COPY, 100.0, invalid="others were busy")]], [COPY, TRIAD]),
    ],
    ids=["several runs", "a run and a pattern", "an invalid measurement"],
)
def test_prune_removes_what_no_full_run_measured(command, baseline, tmp_path, patterns, runs, left):
    files = [save(tmp_path / f"{i}.json", run_of(*rows)) for i, rows in enumerate(runs)]
    not_in = [word for file in files for word in ("--not-in", file)]
    assert command("baseline", "prune", baseline, *patterns, *not_in).status == 0
    assert list(baseline_files.load(baseline).entries) == left


def test_prune_in_a_folder_is_in_the_file_of_the_runs_device(command, baseline, tmp_path):
    other = write(tmp_path / "other.yaml", entry(COPY, 300.0), device=BaselineDevice("Other GPU"))
    run = saved(tmp_path / "1.json", {TRIAD: 700.0})
    assert command("baseline", "prune", tmp_path, "--not-in", run).status == 0
    assert list(baseline_files.load(baseline).entries) == [TRIAD]
    assert list(baseline_files.load(other).entries) == [COPY]
    assert command("baseline", "prune", tmp_path, COPY).status == 0
    assert list(baseline_files.load(other).entries) == []


@pytest.mark.parametrize(
    ("key", "of_run", "told"),
    [
        ("tests/elsewhere.py::test_x", {}, ["nothing was removed"]),
        (TRIAD, {"name": "Other GPU"}, ["'Imaginary GPU'", "'Other GPU'"]),
    ],
)
def test_prune_refuses_a_run(command, baseline, tmp_path, key, of_run, told):
    said = command("baseline", "prune", baseline, "--not-in", saved(tmp_path / "1.json", {key: 700.0}, **of_run))
    assert said.status == 2
    assert [words for words in told if words not in said.err] == []
    assert len(baseline_files.load(baseline).entries) == 3


def test_init_in_a_folder_names_the_file_after_the_device(command, tmp_path):
    found = json.loads(command("baseline", "init", tmp_path / "baselines", "--device", "cpu", "--json").out)
    files = list((tmp_path / "baselines").iterdir())
    assert [str(file) for file in files] == [found["path"]]
    assert baseline_files.load(files[0]).device.name == found["device"]["name"]
    again = command("baseline", "init", tmp_path / "baselines", "--device", "cpu")
    assert again.status == 2
    assert "there already" in again.err
    said = command("baseline", "init", tmp_path / "new" / "host.yaml", "--device", "cpu")
    assert (said.status, found["device"]["name"] in said.out) == (0, True)
    assert baseline_files.load(tmp_path / "new" / "host.yaml").entries == {}
