"""Make a baseline file without entries for the device of this machine."""

from __future__ import annotations

import argparse

from pytest_bandwidth import baseline as baseline_files
from pytest_bandwidth.cli.output import print_json
from pytest_bandwidth.devices.open import open_device
from pytest_bandwidth.reports.text_safe import printable


def run(options: argparse.Namespace) -> int:
    identity = open_device(options.device).identity
    made = baseline_files.init(baseline_files.find_file(options.path, identity), identity)
    if options.json:
        device = {"name": identity.name, "memory_gib": identity.memory_gib, "kind": identity.kind}
        print_json({"path": made.path, "device": device})
    else:
        print(printable(f"wrote {made.path}: {identity.name}, no entries yet; --bandwidth-update fills it"))
    return 0
