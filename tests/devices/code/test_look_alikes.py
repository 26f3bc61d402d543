"""Names that stand for other code than they say: the same code must do the same, whatever its names resolve to."""

import builtins
import importlib
import math
import operator
import sys

import numpy as np
import pytest

from pytest_bandwidth.devices.code.callables import callable_code
from pytest_bandwidth.domain.code.identity import UNKNOWN_CODE

HEAD = "import math, operator, sys, types, builtins, functools\nimport numpy as np\n"


def kernel(body, before="", after=""):
    """Return a module whose kernel(x) runs a body of several lines."""
    lines = "".join(f"    {line}\n" for line in body.split("\n"))
    return f"{HEAD}{before}\ndef kernel(x):\n{lines}{after}\n"


def own(text, before="1.0", after="2.0"):
    """Return a package of one file, and an edit of that."""
    return {"case.py": text}, {"case.py": (before, after)}


def of_class(base, method, returned, made=""):
    """Return a package whose kernel uses something of a class of its own, and an edit of that class."""
    return own(kernel(f"return {returned}", f"class Own({base}):\n    def {method}: return 1.0\n{made}"))


def beside(text, name, other):
    """Return a package of two files, and an edit of the other one."""
    return {"case.py": text, name: other}, {name: ("1.0", "2.0")}


# Each: the package's files, and what an edit makes of one of them, which changes what the kernel returns.
CASES = {
    "a relative import of math": beside(
        kernel("from .math import f\nreturn f(x)"), "math.py", "def f(x): return 1.0\n"
    ),
    "a relative import at the top": beside(
        "from .math import f\ndef kernel(x): return f(x)\n", "math.py", "def f(x): return 1.0\n"
    ),
    "a module put in sys.modules": beside(
        kernel("import cmath\nreturn cmath.f(x)", "from pkg import own\nsys.modules['cmath'] = own"),
        "own.py",
        "__name__ = 'cmath'\ndef f(x): return 1.0\n",
    ),
    "a module with a class of its own": own(
        kernel(
            "return np.linalg.f(x)",
            "class Own(types.ModuleType):\n    def f(self, x): return 1.0\nnp.linalg.__class__ = Own",
            "def undo(): np.linalg.__class__ = types.ModuleType",
        )
    ),
    "a replaced function of NumPy": own(kernel("return np.sum(x)", "np.sum = lambda x: 1.0")),
    "one ufunc in another's place": own(
        kernel("return np.add(x[0], 5.0)", "np.add = np.subtract"), "np.add = np.subtract", "np.add = np.multiply"
    ),
    "a replaced part inside NumPy": own(
        kernel("return np.sum(x)", "import numpy._core.fromnumeric as own\nown._wrapreduction = lambda *_, **k: 1.0")
    ),
    "the code of a function of NumPy": own(
        kernel(
            "return np.isposinf(x)",
            "_own = np.isposinf._implementation\n_then = _own.__code__\n"
            "def f(x, out=None): return 1.0\n_own.__code__ = f.__code__",
            "def undo(): _own.__code__ = _then",
        )
    ),
    "a replaced method of a class of NumPy": own(
        kernel(
            "return np.poly1d([1.0])(1)",
            "_then = np.poly1d.__call__\nnp.poly1d.__call__ = lambda self, x: 1.5",
            "def undo(): np.poly1d.__call__ = _then",
        ),
        "1.5",
        "2.5",
    ),
    "a replaced constant": own(kernel("return math.pi", "math.pi = 3.0"), "3.0", "4.0"),
    "a module handed to a helper": own(
        kernel("return helper(np, x)", "np.sum = lambda x: 1.0\ndef helper(m, x): return m.sum(x)")
    ),
    "a replaced builtin": own(kernel("return sum(x)", "builtins.sum = lambda x: 1.0")),
    "a builtin of the module": own(kernel("return sum(x)", "sum = lambda x: 1.0")),
    "builtins of its own": own(
        HEAD
        + "names = {'__builtins__': {**vars(builtins), 'sum': lambda x: 1.0}}\n"
        + "exec('def kernel(x): return sum(x)', names)\nkernel = names['kernel']\n"
    ),
    "a dictionary of its own for globals": own(
        HEAD
        + "class Own(dict):\n    def __getitem__(self, name):\n"
        + "        return (lambda x: 1.0) if name == 'f' else dict.__getitem__(self, name)\n"
        + "names = Own(f=sum)\nexec('def kernel(x): return f(x)', names)\nkernel = dict.get(names, 'kernel')\n"
    ),
    "a replaced __import__": own(
        kernel(
            "import math\nreturn math.f(x)",
            "class Own:\n    def f(self, x): return 1.0\n_then = builtins.__import__\n"
            "builtins.__import__ = lambda name, *a, **k: Own() if name == 'math' else _then(name, *a, **k)",
        )
    ),
    "a function by its name in globals": own(kernel("return globals()['f'](x)", "def f(x): return 1.0")),
    "an attribute by a text in C": own(kernel("return operator.attrgetter('sum')(np)(x)", "np.sum = lambda x: 1.0")),
    "code of a text": own(kernel("return eval(TEXT)", "TEXT = '1.0'")),
    "a decorator": beside(
        HEAD + "from pkg.own import decorated\n@decorated\ndef kernel(x): return 0.0\n",
        "own.py",
        "def decorated(f):\n    return lambda x: f(x) + 1.0\n",
    ),
    "a decorator that copies NumPy's names": own(HEAD + "@functools.wraps(np.sum)\ndef kernel(x): return 1.0\n"),
    "a wrapper's attribute": own(kernel("return kernel.factor", after="kernel.factor = 1.0")),
    "a default": own(HEAD + "def kernel(x, f=lambda x: 1.0): return f(x)\n"),
    "a keyword's default": own(HEAD + "def kernel(x, *, f=lambda x: 1.0): return f(x)\n"),
    "a partial": own(HEAD + "def f(y, x): return y\nkernel = functools.partial(f, 1.0)\n"),
    "a partial of a class of its own": own(
        HEAD + "class Own(functools.partial):\n    def __call__(self, x): return 1.0\nkernel = Own(np.sum)\n"
    ),
    "a NumPy number of a class of its own": of_class("np.float64", "__add__(self, other)", "A + 0.0", "A = Own(0)"),
    "a list of a class of its own": own(
        HEAD
        + "class Own(list):\n    def __getitem__(self, at): return 1.0\n"
        + "def made(a):\n    def kernel(x): return a[0]\n    return kernel\nkernel = made(Own([0]))\n"
    ),
    "an array of a class of its own": of_class("np.ndarray", "sum(self)", "A.sum()", "A = np.zeros(3).view(Own)"),
    "a class that says to be NumPy's": own(
        kernel(
            "return np.float32(0).f()",
            "class float32(np.float64):\n    __module__ = 'numpy'\n    def f(self): return 1.0\nnp.float32 = float32",
        )
    ),
    "an attribute of a class": own(kernel("return Own.factor", "class Own:\n    factor = 1.0")),
    "a ufunc of its own": own(kernel("return np.own(x[0])", "np.own = np.frompyfunc(lambda x: 1.0, 1, 1)", "")),
    "a vectorized function": own(kernel("return F(x[:1])[0]", "F = np.vectorize(lambda x: 1.0)")),
    "a generator": own(kernel("return next(G)", "G = (value for value in [1.0] * 9)")),
    "a closure's function": own(
        HEAD
        + "def made():\n    f = lambda x: 0.0\n    def kernel(x): return f(x)\n    def rebind():\n"
        + "        nonlocal f\n        f = lambda x: 1.5\n    rebind()\n    return kernel\nkernel = made()\n",
        "1.5",
        "2.5",
    ),
    "a text in a comprehension": own(kernel("return ord([one + 'a' for one in ('',)][0])"), "'a'", "'b'"),
    "a data file": beside(
        kernel("return np.loadtxt(FILE)", "FILE = __file__.replace('case.py', 'data')"), "data", "1.0"
    ),
    "a compiled function of Numba": own(kernel("return f(x)", "import numba\n@numba.njit\ndef f(x): return 1.0")),
    "a replaced function that Numba compiles": own(
        kernel(
            "return f(x)",
            "import numba\n@numba.njit\ndef own(x): return 1.0\nnp.own = own\n@numba.njit\ndef f(x): return np.own(x)",
            "",
        )
    ),
}
RESTORED = (builtins, math, operator, np, np.linalg, importlib.import_module("numpy._core.fromnumeric"))


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Return what writes a package, imports it afresh, and gives what its kernel returns and its code."""
    then = [(module, dict(vars(module))) for module in RESTORED]
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def run(files):
        modules = dict(sys.modules)
        undo = None
        try:
            for name, text in {"__init__.py": "", **files}.items():
                file = tmp_path / "pkg" / name
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text)
            importlib.invalidate_caches()
            case = importlib.import_module("pkg.case")
            undo, x = getattr(case, "undo", None), np.ones(4)
            returned = case.kernel(x)
            return returned, callable_code(case.kernel, (x,), {}, None).identity
        finally:
            if undo is not None:
                undo()
            for module, names in then:
                vars(module).update(names)
                for name in vars(module).keys() - names.keys():
                    if f"{module.__name__}.{name}" not in sys.modules:  # NumPy imports some of its modules late
                        delattr(module, name)
            for name in [name for name in sys.modules if name.partition(".")[0] == "pkg"]:
                del sys.modules[name]
            sys.modules.update(modules)

    return run


def edited(files, edit):
    changed = {name: files[name].replace(*to) if isinstance(to, tuple) else to for name, to in edit.items()}
    assert all(changed[name] != files[name] for name in edit)
    return files | changed


@pytest.mark.parametrize("case", CASES)
def test_other_code_behind_a_name_is_not_the_same(run, case):
    files, edit = CASES[case]
    before, after = run(files), run(edited(files, edit))
    assert before[0] != after[0]
    assert not before[1].is_same(after[1], by="sass")


SAME = {
    "NumPy by its usual name": kernel("return np.sum(x)"),
    "an import in its body": kernel("from math import sqrt\nimport numpy.linalg as la\nreturn sqrt(la.norm(x))"),
    "a helper of its own": kernel("return helper(np, x)", "def helper(m, x): return m.sum(x)"),
    "a wrapper of its own": kernel(
        "return 2.0",
        "def twice(f):\n    @functools.wraps(f)\n    def g(x): return f(x)\n    return g",
        "kernel = twice(kernel)",
    ),
    "builtins": kernel("return sum(float(one) for one in x if isinstance(one, np.float64))"),
    "a compiled function of Numba": kernel("return f(x)", "import numba\n@numba.njit\ndef f(x): return np.sum(x)"),
    "constants": kernel("return math.pi + np.e"),
}


@pytest.mark.parametrize("case", SAME)
def test_originals_stay_known_by_their_names(run, case):
    first, again = (run({"case.py": SAME[case]})[1] for _ in range(2))
    assert first != UNKNOWN_CODE
    assert first.is_same(again, by="sass")
