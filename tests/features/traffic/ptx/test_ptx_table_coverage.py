"""Every row of the opcode table, with each modifier that it allows and without, is executed by a test of the lab."""

from __future__ import annotations

import pytest
from opcode_lab import Lab

from pytest_bandwidth.features.traffic.ptx.opcodes.forms import SETS, Form
from pytest_bandwidth.features.traffic.ptx.opcodes.table import TABLE


def test_no_spelling_of_the_table_is_without_a_test(lab: Lab) -> None:
    if not lab.complete:
        pytest.skip("looks back on the whole lab: run all of tests/features/traffic/ptx in one process")
    seen: set[str] = set()
    for opcode in lab.executed:
        match = TABLE.find(opcode)
        assert match is not None, opcode
        seen |= {spelling(match.form, name, match.choice.get(name)) for name, _ in match.form.slots}
        seen.add(match.form.syntax)
    wanted = {form.syntax for form in TABLE.forms}
    for form in TABLE.forms:
        for name, optional in form.slots:
            words = (*SETS.get(name, (name,)), *([None] if optional else []))
            wanted |= {spelling(form, name, word) for word in words}
    missing = sorted(wanted - seen)
    assert not missing, "no test executes\n" + "\n".join(missing)


def spelling(form: Form, name: str, word: str | None) -> str:
    return f"{form.syntax} without {name}" if word is None else f"{form.syntax} with {word} as {name}"
