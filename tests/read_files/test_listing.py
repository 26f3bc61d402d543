"""Which files a test depends on: in packages of every shape, and where files are not what they should be."""

import importlib.util
import os
import sys

import pytest

from pytest_bandwidth.read_files import listing
from pytest_bandwidth.read_files.listing import FilesUnknown, ReadFiles, imports_of
from pytest_bandwidth.read_files.opened import OpenedFiles

FILES = {
    "own/__init__.py": "",
    "own/used.py": "from . import deep\ndef f(): pass\n",
    "own/deep.py": "import own.lazy_user\n",
    "own/lazy_user.py": "def g():\n    from .lazy import h\n    return h\n",
    "own/lazy.py": "h = 1\n",
    "own/other.py": "",
    "conftest.py": "",
    "below/conftest.py": "",
    "test_it.py": "from own import used\n",
    "test_other.py": "import own.other\n",
    "README.md": "",
}
USED = {"own/__init__.py", "own/used.py", "own/deep.py", "own/lazy_user.py", "own/lazy.py", "test_it.py", "conftest.py"}


ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
OURS = tuple(os.path.join(ROOT, name, "") for name in ("benchmarks", "tests"))


class Case:
    def __init__(self, root):
        self.root = root
        self.opened = OpenedFiles(str(root))
        self.read = ReadFiles(self.opened, ["test_*.py"])
        for name, text in FILES.items():
            self.file(name, text)

    def file(self, name, text=""):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def load(self, *names):
        importlib.invalidate_caches()
        for name in names:
            importlib.import_module(name)

    def reads(self, name):
        """Note that the test opens a file, as the audit hook would."""
        path = str(self.root / name)
        self.opened._see(path)
        self.opened.of_test.files.add(path)

    def list(self, file="test_it.py", fixtures=()):
        plugins = [str(self.root / "conftest.py")]
        return self.read.list_of(f"{file}::test", str(self.root / file), fixtures, plugins)

    def files(self, *args, **keywords):
        return set(self.list(*args, **keywords).files)


@pytest.fixture
def case(tmp_path, monkeypatch):
    for name, module in list(sys.modules.items()):  # other tests' user modules, which would belong to every test
        if name.startswith("pytest_bandwidth.suite") or str(vars(module).get("__file__")).startswith(OURS):
            monkeypatch.delitem(sys.modules, name)
    before = set(sys.modules)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield Case(tmp_path)
    for name in set(sys.modules) - before:
        del sys.modules[name]


@pytest.mark.parametrize("loaded", [(), ("test_it", "test_other"), ("test_it", "test_other", "own.lazy")])
def test_a_test_depends_on_what_its_module_imports(case, loaded):
    """Whichever modules have been loaded so far, by itself or by others."""
    case.load(*loaded)
    assert case.files() == USED
    assert case.files("test_other.py") == {"own/__init__.py", "own/other.py", "test_other.py", "conftest.py"}


def test_a_module_of_a_package_counts_where_its_name_is_taken(case):
    """Another module imports own.other; this one reaches it by the package's attribute."""
    case.file("test_it.py", "import own\ndef test(): own.other\n")
    case.load("test_it", "test_other")
    assert case.files() == {"own/__init__.py", "own/other.py", "test_it.py", "conftest.py"}


def test_a_text_that_may_import_anything_depends_on_all(case):
    case.file("test_it.py", "import importlib\ndef f(name): return importlib.import_module(name)\n")
    assert case.files() == {name for name in FILES if name.endswith(".py")}


def test_a_module_that_no_test_imports_belongs_to_all(case):
    case.file("plugged.py")
    case.load("test_it", "plugged")
    assert case.files() == USED | {"plugged.py"}


@pytest.mark.parametrize("name", ["__main__", "__mp_main__"])
def test_how_python_was_started_does_not_count(case, monkeypatch, name):
    """multiprocessing calls it so in a process that it spawns, as an update's further runs are."""
    case.file("started.py")
    case.load("test_it", "started")
    monkeypatch.setitem(sys.modules, name, sys.modules.pop("started"))
    assert case.files() == USED


def test_a_module_that_loads_at_its_first_use_is_not_loaded(case):
    case.file("lazily.py", "LOADED = True\n")
    spec = importlib.util.find_spec("lazily")
    spec.loader = importlib.util.LazyLoader(spec.loader)
    sys.modules["lazily"] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    case.load("test_it")
    assert case.files() == USED | {"lazily.py"}
    assert "LOADED" not in object.__getattribute__(module, "__dict__")


def test_what_somebody_put_into_a_module_counts(case):
    case.file("patch.py", "def f(): pass\n")
    case.file("test_patch.py", "import patch, own.used\nown.used.f = patch.f\n")
    case.load("test_it", "test_patch")
    assert case.files() == USED | {"patch.py"}


def test_variables_that_modules_name_are_noted(case, monkeypatch):
    case.file("own/lazy.py", "import os\nh = os.environ.get('OWN_SIZE')\n")
    unset = case.list()
    monkeypatch.setenv("OWN_SIZE", "8")
    (said,) = case.list().changes_since(unset)
    assert said.startswith("$OWN_SIZE unset → ")


def test_sources_depend_on_what_they_include(case):
    case.file("kernels/a.cu", '#include "deep/b.cuh"\n#include <cuda_fp16.h>\n')
    case.file("include/deep/b.cuh", '#include "../c.h"\n')
    case.file("include/c.h")
    case.file("include/unused.h")
    case.reads("kernels/a.cu")
    assert case.files() == USED | {"kernels/a.cu", "include/deep/b.cuh", "include/c.h"}


def vanished(_, file):
    file.unlink()


def replaced(_, file):
    file.unlink()
    file.write_text("other")
    os.utime(file, (1, 1))


def pipe(case, file):
    file.unlink()
    os.mkfifo(file)
    case.opened.first_seen.clear()


def huge(case, file):
    with file.open("r+b") as stream:
        stream.truncate(listing.LARGEST_FILE_BYTES + 1)
    case.opened.first_seen.clear()


def unreadable(case, file):
    """A device of which reading fails even for root."""
    file.unlink()
    file.symlink_to("/proc/self/mem")
    case.opened.first_seen.clear()


BAD = {
    vanished: "'data.bin' was replaced or removed after it was read",
    replaced: "'data.bin' was replaced or removed after it was read",
    pipe: "'data.bin' is not a regular file",
    huge: "'data.bin' is larger than 256 MiB",
    unreadable: "'data.bin' cannot be read",
}


@pytest.mark.parametrize("spoil", BAD, ids=lambda spoil: spoil.__name__)
def test_a_file_that_cannot_be_told_makes_code_unknown(case, spoil):
    file = case.file("data.bin", "data")
    case.reads("data.bin")
    assert "data.bin" in case.files()
    spoil(case, file)
    with pytest.raises(FilesUnknown, match=BAD[spoil]):
        case.list()


def test_a_file_replaced_while_it_is_hashed_is_unknown(case, monkeypatch):
    file = case.file("data.bin", "data")
    case.reads("data.bin")
    read = os.fstat

    def replaced_meanwhile(descriptor):
        if os.path.realpath(f"/proc/self/fd/{descriptor}") == str(file):
            file.write_text("other data")
        return read(descriptor)

    monkeypatch.setattr(os, "fstat", replaced_meanwhile)
    with pytest.raises(FilesUnknown, match=r"'data\.bin' was replaced while it was read"):
        case.list()


def test_a_link_out_of_the_root_is_known_by_what_it_leads_to(case, tmp_path_factory):
    outside = tmp_path_factory.mktemp("outside") / "data"
    outside.write_text("1")
    (case.root / "data").symlink_to(outside)
    case.reads("data")
    before = case.list()
    assert "data" in before.files
    case.opened.first_seen.clear()
    outside.write_text("2")
    assert case.list().changes_since(before) == ("data changed",)


def test_folders_and_made_files_do_not_count(case):
    for name in (".git/index", "__pycache__/a.nbi", ".pytest_cache/v", "env/lib/site-packages/a.py"):
        case.file(name)
        case.reads(name)
    (case.root / "folder").mkdir()
    case.reads("folder")
    assert case.files() == USED


@pytest.mark.parametrize("folder", ["cache", "."])
def test_what_compilers_keep_does_not_count(case, tmp_path_factory, monkeypatch, folder):
    """Below the root folder or outside, read or loaded; but for a folder that holds the user's own files, too."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(case.root / folder))
    outside = tmp_path_factory.mktemp("inductor")
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(outside))
    monkeypatch.syspath_prepend(str(outside))
    case.file("cache/made_inside.py")
    (outside / "made_outside.py").touch()
    case.reads("cache/made_inside.py")
    case.load("made_outside", "test_it")
    assert case.files() == USED | ({"cache/made_inside.py"} if folder == "." else set())


@pytest.mark.parametrize(("file", "counts"), [("test_it.py", True), ("env/lib/site-packages/compiler.py", False)])
def test_programs_count_that_the_users_own_code_starts(case, file, counts):
    case.opened.begin_test()
    text = "opened.audit('subprocess.Popen', ('cc', ['cc'], None, None))"
    exec(compile(text, str(case.root / file), "exec"), {"opened": case.opened, "__name__": "starting"})
    assert case.opened.of_test.starts == ("cc" if counts else None)


def test_a_program_that_the_test_starts_and_more_files_than_can_be_told_are_unknown(case, monkeypatch):
    monkeypatch.setattr(listing, "MOST_FILES", 3)
    with pytest.raises(FilesUnknown, match="expected at most 3"):
        case.list()
    case.opened.of_test.starts = "git"
    with pytest.raises(FilesUnknown, match="the test starts 'git'"):
        case.list()


NAMES = {
    "import a as b, c": {"a", "c"},
    "from a import b": {"a", "a.b"},
    "from a import *": {"a", "a.*"},
    "from . import b": {".", ".b"},
    "from ..a import b": {"..a", "..a.b"},
    "def f():\n    from .a import b": {".a", ".a.b"},
    "try:\n    import a\nexcept ImportError:\n    import b": {"a", "b"},
    "import importlib\nimportlib.import_module('a.b')": {"importlib", "a.b"},
    "import pytest\na = pytest.importorskip('a')": {"pytest", "a"},
    "__import__('a')": {"a"},
    "model.eval()": set(),
    "re.compile('a')": set(),
}
DYNAMIC = (
    "import importlib\nimportlib.import_module(name)",
    "from importlib import import_module as load\nload('a')",
    "load = __import__",
    "eval('f')",
    "run = exec",
    "pytest.importorskip(name)",
    "runpy.run_path('a.py')",
    "spec = util.spec_from_file_location('a', 'a.py')",
    "getattr(importlib, 'import_module')('a')",
    "for one in pkgutil.iter_modules(path): pass",
    "\0",
)
VARIABLES = {
    "os.environ['A']": {"A"},
    "os.environ.get('A', 1)": {"A"},
    "os.getenv('A')": {"A"},
    "environ.setdefault('A', '1')": {"A"},
    "others.get('A')": set(),
    "os.environ[name]": set(),
}


@pytest.mark.parametrize("text", NAMES)
def test_names_are_what_a_text_imports(text):
    found = imports_of(text.encode())
    assert found.names == NAMES[text]
    assert not found.dynamic


@pytest.mark.parametrize("text", DYNAMIC)
def test_a_text_that_may_import_anything_says_so(text):
    assert imports_of(text.encode()).dynamic


@pytest.mark.parametrize("text", VARIABLES)
def test_variables_of_the_environment_are_those_named(text):
    assert imports_of(text.encode()).variables == VARIABLES[text]
