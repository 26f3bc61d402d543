"""Find a kernel's source text or compiled code, and the headers that its source includes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from os import walk
from os.path import isdir, isfile  # Path's methods raise for a name that no file system accepts
from pathlib import Path

from pytest_bandwidth.devices.base import CompiledCode, KernelSource
from pytest_bandwidth.devices.code.compiled import LARGEST_READ, is_ptx, kernel_in
from pytest_bandwidth.devices.code.cubin import MAGIC
from pytest_bandwidth.devices.code.fatbin import CONTAINER
from pytest_bandwidth.domain.code.identity import digest
from pytest_bandwidth.domain.code.kernel_signature import without_comments
from pytest_bandwidth.domain.errors import KernelError
from pytest_bandwidth.domain.text import shown

_PACKAGE = Path(__file__).resolve().parent.parent
# In a wheel the kernels lie inside the package, in a checkout next to it.
_SHIPPED_FOLDERS = (_PACKAGE / "cuda_src", _PACKAGE.parent / "cuda_src")
# Stand-ins for headers of the host that NVRTC lacks: the last folder for includes, so that the user's own go first.
STAND_INS = _PACKAGE / "devices" / "headers"
_KERNEL = re.compile(
    r"__global__\s+(?:(?:static|inline|extern|const)\s+|__launch_bounds__\s*\([^()]*\)\s*)*void\s+"
    r"(?:__launch_bounds__\s*\([^()]*\)\s*)?([A-Za-z_]\w*)\s*\("
)
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"\n]+)[>"]', re.MULTILINE)
LARGEST_SOURCE_BYTES = 16 * 2**20
LIBRARIES_KEPT = 8
MOST_FOLDERS = 2000


def shipped_folder() -> Path:
    """Return the folder of the package's own kernels."""
    for folder in _SHIPPED_FOLDERS:
        if folder.is_dir():
            return folder
    raise KernelError(f"no cuda_src folder in {_PACKAGE}: the installation is incomplete, reinstall pytest-bandwidth")


def shipped_files() -> list[str]:
    return sorted(path.name for path in shipped_folder().glob("*.cu"))


def kernel_names(text: str) -> list[str]:
    """List the __global__ functions in CUDA C++ text, in order, without those that macros define."""
    return _KERNEL.findall(without_comments(text))


def include_folders(options: Sequence[str]) -> tuple[Path, ...]:
    """Return the include folders in options of NVRTC."""
    folders = []
    for number, option in enumerate(options):
        flag = next((flag for flag in ("--include-path=", "-I") if option.startswith(flag)), None)
        if flag is not None:
            folders.append(option.removeprefix(flag).strip() or "".join(options[number + 1 : number + 2]))
    return tuple(map(Path, folders))


def included_names(text: str) -> set[str]:
    """Return the names of files that a source includes, also in lines that the preprocessor skips."""
    return {name for _, name in _INCLUDE.findall(text)}


def headers_digest(text: str, folders: Sequence[Path]) -> str:
    """Hash the files that a source includes from folders, and their own includes, also in lines that are skipped."""
    found: dict[Path, bytes] = {}
    waiting = [(text, tuple(folders))]
    while waiting:
        including, places = waiting.pop()
        for quote, name in _INCLUDE.findall(including):
            searched = places if quote == '"' else folders
            file = next((place / name for place in searched if (place / name).is_file()), None)
            if file is None or file in found or file.stat().st_size > LARGEST_SOURCE_BYTES:
                continue
            with suppress(OSError):  # the compiler reports it
                found[file] = file.read_bytes()
                waiting.append((found[file].decode("utf-8", "replace"), (file.parent, *folders)))
    return digest(*sorted(digest(data) for data in found.values()))


def read_source(
    source: str | Path,
    name: str | None,
    folders: Sequence[Path],
    options: Sequence[str] = (),
    name_expressions: Sequence[str] = (),
) -> KernelSource:
    """Read the text of a kernel, or its compiled code. `folders` are searched in order before the shipped files.

    Raises KernelError where file or kernel does not exist, listing those that do.
    """
    if not isinstance(source, str | Path) or not str(source).strip():
        raise KernelError(f"kernel: found {shown(source)}, expected text (str): a file's name, CUDA C++ or PTX")
    if name is not None and not (isinstance(name, str) and name.strip()):
        raise KernelError(f"kernel: found {shown(name)} for its name, expected the name of a __global__ function")
    options, name_expressions = _texts("options", options), _texts("name_expressions", name_expressions)
    if isinstance(source, str) and any(mark in source for mark in ("\n", "{", "__global__")):  # no file's name
        text, file, shipped = source, None, False
    else:
        file, shipped = _find(Path(source), folders)
        try:
            if (found := _compiled_in(file, name)) is not None:
                _refuse_options(file.name, options, name_expressions)
                return KernelSource("", found[0], file, compiled=found[1])
            if file.stat().st_size > LARGEST_SOURCE_BYTES:
                most = f"{LARGEST_SOURCE_BYTES // 2**20} MiB"
                raise KernelError(f"{file} is larger than {most}, expected CUDA C++ text or PTX")
            text = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise KernelError(f"{file} cannot be read as UTF-8 text: {error}") from None
    if is_ptx(text):
        _refuse_options("PTX", options, name_expressions)
        name, compiled = kernel_in(text, str(file or "the PTX"), name)
        return KernelSource("", name, file, compiled=compiled)
    if file is not None and file.suffix == ".ptx":
        raise KernelError(f"{file} holds no PTX, expected text that begins with .version")
    if name is None:
        names = kernel_names(text)
        if len(names) != 1:
            raise KernelError(f"{file or 'the source text'} holds {_listed(names)}: name the one that is meant")
        name = names[0]
    if ("<" in name or "::" in name) and name not in name_expressions:
        name_expressions = (*name_expressions, name)
    if shipped and name not in text and name not in name_expressions:
        raise KernelError(f"{file and file.name} has no kernel {name!r}, it has {_listed(kernel_names(text))}")
    return KernelSource(text, name, file, shipped, options, name_expressions)


def _compiled_in(file: Path, name: str | None) -> tuple[str, tuple[CompiledCode, ...]] | None:
    """Return a kernel's symbol and code out of a binary file; None for any other file. Raises KernelError, OSError."""
    with file.open("rb") as opened:
        if not opened.read(8).startswith((MAGIC, CONTAINER)):
            return None
    state = file.stat()
    if state.st_size > LARGEST_READ:
        raise KernelError(f"{file} is larger than {LARGEST_READ // 2**20} MiB: build the kernel by itself")
    return _kernel_in_state(file, name, state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns)


@lru_cache(LIBRARIES_KEPT)
def _kernel_in_state(file: Path, name: str | None, *state: int) -> tuple[str, tuple[CompiledCode, ...]]:
    """Read a file once for each state: most tests of a process share a library."""
    del state
    return kernel_in(file.read_bytes(), str(file), name)


def _refuse_options(what: str, options: Sequence[str], name_expressions: Sequence[str]) -> None:
    for option, given in (("options", options), ("name_expressions", name_expressions)):
        if given:
            raise KernelError(f"kernel: found {option}= for {what}, which is compiled already: leave it out")


def _texts(what: str, given: object) -> tuple[str, ...]:
    if isinstance(given, Sequence) and not isinstance(given, str | bytes) and all(isinstance(g, str) for g in given):
        return tuple(given)
    raise KernelError(f"kernel: found {shown(given)} for {what}, expected a list or tuple of texts")


def options_of(source: KernelSource) -> tuple[str, ...]:
    """Return the user's options for the compiler, and the file's own folder for its includes."""
    return source.options if source.file is None else (*source.options, f"-I{source.file.parent}")


def _listed(names: Sequence[str]) -> str:
    return f"the kernels {', '.join(names)}" if names else "no kernel"


def _find(path: Path, folders: Sequence[Path]) -> tuple[Path, bool]:
    candidates = [path] if path.is_absolute() else [folder / path for folder in folders]
    for candidate in candidates:
        if isfile(candidate):
            return candidate, candidate.parent == shipped_folder()
    if not path.is_absolute() and isfile(shipped_folder() / path):
        own = None if not folders or _PACKAGE.name in folders[0].parts else _namesake(path.name, folders[-1])
        if own is not None:
            raise KernelError(
                f"kernel: pytest-bandwidth ships a {path.name}, and {own} is yours: say which by its path, "
                f"{str(own)!r} or {str(shipped_folder() / path)!r}"
            )
        return shipped_folder() / path, True
    if folder := next((candidate for candidate in candidates if isdir(candidate)), None):
        raise KernelError(f"kernel: found the folder {folder}, expected a file of CUDA C++ text")
    looked = ", ".join(dict.fromkeys(str(c.parent) for c in candidates))
    raise KernelError(f"no kernel file {str(path)!r} in {looked}; shipped files are {', '.join(shipped_files())}")


@lru_cache(MOST_FOLDERS)
def _namesake(name: str, root: Path) -> Path | None:
    """Find a file below the root folder that has a shipped file's name and other contents; return its relative path.

    The search skips hidden folders and virtual environments. It ends after `MOST_FOLDERS` folders.
    """
    for number, (folder, inner, files) in enumerate(walk(root)):
        if number >= MOST_FOLDERS:
            break
        inner[:] = [one for one in inner if not one.startswith(".") and not isfile(Path(folder, one, "pyvenv.cfg"))]
        if name in files and Path(folder, name).read_bytes() != (shipped_folder() / name).read_bytes():
            return Path(folder, name).relative_to(root)
    return None
