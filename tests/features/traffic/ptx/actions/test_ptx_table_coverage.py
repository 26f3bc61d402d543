"""Each row of actions in the opcode table is executed, with each modifier that it allows and without."""

from __future__ import annotations

from opcode_lab import computes

from pytest_bandwidth.features.traffic.ptx.opcodes.forms import SETS, Form
from pytest_bandwidth.features.traffic.ptx.opcodes.table import TABLE


def test_every_spelling_of_an_action_has_a_test(executed: set[str]) -> None:
    seen: set[str] = set()
    for opcode in executed:
        match = TABLE.find(opcode)
        assert match is not None, opcode
        seen |= {spelling(match.form, name, match.choice.get(name)) for name, _ in match.form.slots}
        seen.add(match.form.syntax)
    actions = [form for form in TABLE.forms if not computes(form)]
    wanted = {form.syntax for form in actions}
    for form in actions:
        for name, optional in form.slots:
            words = (*SETS.get(name, (name,)), *([None] if optional else []))
            wanted |= {spelling(form, name, word) for word in words}
    missing = sorted(wanted - seen)
    assert not missing, "no test executes\n" + "\n".join(missing)


def spelling(form: Form, name: str, word: str | None) -> str:
    return f"{form.syntax} without {name}" if word is None else f"{form.syntax} with {word} as {name}"
