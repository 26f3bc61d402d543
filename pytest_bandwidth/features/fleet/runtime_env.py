"""Read the environment or container that Ray shall run the cards' tests in: its runtime_env, as a file of JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.domain.text import shown

# Ray's own names, without those of what it ships: --chdir is for that. https://docs.ray.io/en/latest/ray-core/handling-dependencies.html
ENVIRONMENTS = ("pip", "uv", "conda", "py_executable", "image_uri", "container")
BESIDE = ("env_vars", "config")
CONTAINERS = ("image_uri", "container")
TEXTS = ("py_executable", "image_uri")
LARGEST_BYTES = 2**20


def read_runtime_env(path: Path, *, ships_folder: bool) -> dict[str, Any]:
    """Return what the file says. ships_folder: whether Ray ships the current folder, which no container takes.

    Raises UsageError for what is no runtime_env, or one that Ray would refuse on every node.
    """
    content: Any
    try:
        data = path.read_bytes()[: LARGEST_BYTES + 1]
        content = json.loads(data) if len(data) <= LARGEST_BYTES else None
    except OSError as error:
        raise UsageError(f"--runtime-env {path}: cannot be read: {error.strerror}, expected JSON") from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"--runtime-env {path}: found no JSON ({shown(str(error))}), expected an object") from None
    fault = next(_faults(content, ships_folder=ships_folder), None)
    if fault is not None:
        raise UsageError(f"--runtime-env {path}: {fault}")
    return dict(content)


def _faults(content: Any, *, ships_folder: bool) -> Iterator[str]:
    if not isinstance(content, dict):
        yield 'found no object, expected one like {"pip": ["numpy"]}'
    for name in content:
        if name not in (*ENVIRONMENTS, *BESIDE):
            yield f"found {shown(name)}, expected some of {', '.join((*ENVIRONMENTS, *BESIDE))}"
    for name in TEXTS:
        if name in content and not (isinstance(content[name], str) and content[name]):
            yield f"found {name} {shown(content[name])}, expected a text"
    for text in _texts(content):
        # Ray hangs on some of these, and prints the others.
        if not text.isprintable():
            yield f"found {shown(text)}, expected no control characters"
    variables = content.get("env_vars", {})
    if not isinstance(variables, dict) or any(not name or "=" in name for name in variables):
        yield f"found env_vars {shown(variables)}, expected values by variable's name"
    chosen = [name for name in ENVIRONMENTS if name in content]
    if len(chosen) > 1:
        yield f"found {' and '.join(chosen)}, expected one of them"
    if ships_folder and any(name in CONTAINERS for name in chosen):
        yield (
            f"found {chosen[0]}, which takes no folder from Ray, expected --chdir DIR with it: "
            "the checkout in the container"
        )


def _texts(content: object) -> Iterator[str]:
    """Yield the texts of a document, names included."""
    if isinstance(content, str):
        yield content
    elif isinstance(content, dict):
        yield from _texts([*content, *content.values()])
    elif isinstance(content, list):
        for value in content:
            yield from _texts(value)
