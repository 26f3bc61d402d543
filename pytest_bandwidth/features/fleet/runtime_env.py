"""Read the environment or container that Ray shall run the cards' tests in: its runtime_env, as a file of JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
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
    try:
        data = path.read_bytes()[: LARGEST_BYTES + 1]
        content = json.loads(data) if len(data) <= LARGEST_BYTES else None
    except OSError as error:
        raise UsageError(f"--runtime-env {path}: cannot be read: {error.strerror}, expected JSON") from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"--runtime-env {path}: found no JSON ({shown(str(error))}), expected an object") from None
    if not isinstance(content, dict):
        raise UsageError(f'--runtime-env {path}: found no object, expected one like {{"pip": ["numpy"]}}')
    _refuse(path, content, ships_folder=ships_folder)
    return content


def _texts(content: object) -> Iterator[str]:
    """Yield the texts of a document, names included."""
    if isinstance(content, str):
        yield content
    elif isinstance(content, dict):
        for name, value in content.items():
            yield name
            yield from _texts(value)
    elif isinstance(content, list):
        for value in content:
            yield from _texts(value)


def _refuse(path: Path, content: Mapping[str, Any], *, ships_folder: bool) -> None:
    unknown = [name for name in content if name not in (*ENVIRONMENTS, *BESIDE)]
    if unknown:
        expected = ", ".join((*ENVIRONMENTS, *BESIDE))
        raise UsageError(f"--runtime-env {path}: found {shown(unknown[0])}, expected some of {expected}")
    for name in TEXTS:
        if name in content and not (isinstance(content[name], str) and content[name]):
            raise UsageError(f"--runtime-env {path}: found {name} {shown(content[name])}, expected a text")
    # Ray hangs on some of these, and prints the others.
    odd = next((text for text in _texts(content) if not text.isprintable()), None)
    if odd is not None:
        raise UsageError(f"--runtime-env {path}: found {shown(odd)}, expected no control characters")
    variables = content.get("env_vars", {})
    if not isinstance(variables, dict) or any(not name or "=" in name for name in variables):
        raise UsageError(f"--runtime-env {path}: found env_vars {shown(variables)}, expected values by variable's name")
    chosen = [name for name in ENVIRONMENTS if name in content]
    if len(chosen) > 1:
        raise UsageError(f"--runtime-env {path}: found {' and '.join(chosen)}, expected one of them")
    if ships_folder and any(name in CONTAINERS for name in chosen):
        raise UsageError(
            f"--runtime-env {path}: found {chosen[0]}, which takes no folder from Ray, expected --chdir DIR with it: "
            "the checkout in the container"
        )
