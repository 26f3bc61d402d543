"""Find the baseline file that belongs to a device."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from os.path import exists, isdir  # Path's methods raise for a path that cannot be searched, or is invalid
from pathlib import Path

from pytest_bandwidth.baseline.files import error
from pytest_bandwidth.baseline.reader import read, read_device
from pytest_bandwidth.baseline.schema import render_device
from pytest_bandwidth.domain.baseline import Baseline, BaselineDevice
from pytest_bandwidth.domain.device import DeviceIdentity
from pytest_bandwidth.domain.errors import BaselineError, Problem

_SUFFIXES = (".yaml", ".yml")
_MAX_FILES = 1000


def is_folder(path: Path) -> bool:
    """Return whether a path means a folder of one file per device: it is one, or is not there and names no YAML."""
    return isdir(path) or (not exists(path) and path.suffix.lower() not in _SUFFIXES)


def is_named_as_baseline(path: Path) -> bool:
    """Return whether a file of that name in a folder of baselines counts as one."""
    return path.suffix.lower() in _SUFFIXES and not path.name.startswith(".")


def files_in(folder: Path) -> list[Path]:
    """Return the baseline files of a folder, by name."""
    try:
        return sorted(path for path in folder.iterdir() if is_named_as_baseline(path))
    except FileNotFoundError:
        return []
    except OSError as problem:
        message = f"found a folder that cannot be read ({problem.strerror}), expected a readable one"
        raise error(folder, 0, message) from None


def slug(name: str) -> str:
    """Return a device's name as a file name: ``NVIDIA A100-SXM4-80GB`` → ``nvidia-a100-sxm4-80gb``."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:100] or "device"


def find_file(path: Path, device: DeviceIdentity) -> Path:
    """Return a device's file: `path` itself, or in a folder the file whose header names the device.

    Where no header does, it is the only file without a device, as one written by hand may be, else a new name.
    Raises BaselineError where two files name the device, or a file without a device is not the only candidate. It also
    does where no file names the device and some cannot be read.
    """
    if not is_folder(path):
        return path
    matching: list[Path] = []
    nameless: list[Path] = []
    problems: list[Problem] = []
    for file in files_at(path):
        try:
            header = read_device(file)
        except BaselineError as bad:
            problems += bad.problems
            continue
        if header is None:
            nameless.append(file)
        elif header.matches(device):
            matching.append(file)
    if len(matching) > 1:
        only = f"expected it in one file only: {matching[0]} is for it, too"
        raise error(matching[1], 1, f"found the device {device.name!r}, {only}")
    if nameless and len(matching) + len(nameless) > 1:
        other = (matching + nameless[1:])[0]
        line = render_device(device_of(device)).strip()
        raise error(nameless[0], 1, f"found no device, expected one because {other} is in the same folder: add {line}")
    if matching:
        return matching[0]
    if problems:
        raise BaselineError(problems)
    if nameless:
        return nameless[0]
    base = slug(device.name)
    with_memory = [f"{base}-{device.memory_gib}gib"] if device.memory_gib else []
    names = [base, *with_memory, *(f"{base}-{n}" for n in range(2, 1002))]
    return next(path / f"{name}.yaml" for name in names if not (path / f"{name}.yaml").exists())


def load_all(path: Path) -> Iterator[Baseline]:
    """Yield the values of each file that `path` means, for any device; nothing where it is missing.

    Raises BaselineError at the end, with the problems of all files.
    """
    problems: list[Problem] = []
    for file in files_at(path):
        try:
            yield read(file).baseline
        except BaselineError as bad:
            problems += bad.problems
    if problems:
        raise BaselineError(problems)


def find_code(folder: Path, device: DeviceIdentity) -> Path | None:
    """Return the file of a folder that keeps the PTX of the most entries of devices of this kind; None without any."""
    found = (
        (sum("ptx" in entry.code for entry in baseline.entries.values()), Path(baseline.path or ""))
        for baseline in load_all(folder)
        if baseline.device is not None and baseline.device.is_of_kind(device)
    )
    most, file = max(found, key=lambda one: one[0], default=(0, folder))
    return file if most else None


def refuse_other_devices(path: Path, identity: DeviceIdentity) -> None:
    """Raise BaselineError for a folder whose files name devices, none of them this run's."""
    headers = filter(None, map(read_device, files_at(path) if is_folder(path) else ()))
    if others := {header.name: header for header in headers}:
        raise BaselineError(
            f"{path}: found baselines of {', '.join(others)}, expected one of {identity.name}, this run's device: "
            f"write it with --bandwidth-update{_or_choose(others.values(), identity)}"
        )


def _or_choose(devices: Iterable[BaselineDevice], identity: DeviceIdentity) -> str:
    """Advise to choose a device as the files', where all are of other kinds than the run's."""
    kinds = dict.fromkeys(device.kind for device in devices if not device.is_of_kind(identity))
    return f", or choose {' or '.join(f'--bandwidth-device={kind}' for kind in kinds)}" if kinds else ""


def keys_at(path: Path) -> list[str]:
    """Return the keys of each file that `path` means, for any device. Raises BaselineError."""
    if not exists(path):
        raise error(path, 0, "found no such file or folder, expected a baseline: --bandwidth-update makes one")
    return [key for baseline in load_all(path) for key in baseline.entries]


def files_at(path: Path) -> list[Path]:
    """Return the files that `path` means: itself, or those of a folder; empty where it is missing."""
    if not is_folder(path):
        return [path] if exists(path) else []
    files = files_in(path)
    if len(files) > _MAX_FILES:
        raise error(path, 0, f"found {len(files)} YAML files, expected a folder of at most {_MAX_FILES} baselines")
    return files


def device_of(identity: DeviceIdentity) -> BaselineDevice:
    """Return the header of a new file for this device."""
    return BaselineDevice(identity.name, identity.memory_gib, identity.kind)


def check_device(baseline: Baseline, identity: DeviceIdentity) -> None:
    """Raise BaselineError, naming both devices, where the file is another device's; one without a device fits all."""
    device = baseline.device
    if device is None or device.matches(identity):
        return
    expected = f"expected one of this run's device, {_described(device_of(identity))}"
    remedy = f"name that device's file, or a folder with one file per device{_or_choose([device], identity)}"
    message = f"found a baseline of {_described(device)}, {expected}: {remedy}"
    raise error(baseline.path or "baseline", device.line or 1, message)


def _described(device: BaselineDevice) -> str:
    about = [f"{device.memory_gib} GiB"] if device.memory_gib is not None else []
    about += [device.kind] if device.kind else []
    return f"{device.name!r} ({', '.join(about)})" if about else repr(device.name)
