"""What a module's text says that it imports, and where it may import more."""

import pytest

from pytest_bandwidth.read_files.listing import imports_of

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
