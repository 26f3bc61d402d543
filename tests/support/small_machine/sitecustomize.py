"""Have processes that tests start find a cache of one megabyte, and Numba load neither SciPy nor coverage.

A server's cache takes longer to read than all the rest of a small measurement, and is read before each sample. SciPy,
of which Numba has matrix products, and coverage, which it tells of lines that it compiles, take a fifth of a process's
start. What NVRTC has compiled before it does not compile again (`kept`). Found through PYTHONPATH.
"""

import importlib.util
import os
import pathlib
import sys
import types

FOUND, GIVEN = "/sys/devices/system/cpu/cpu0/cache", pathlib.Path(__file__).with_name("cache")
_glob = pathlib.Path.glob


def _glob_on_the_small_machine(self, pattern, **more):
    return _glob(GIVEN if str(self) == FOUND else self, pattern, **more)


class _NoSciPyForNumba:
    @staticmethod
    def find_spec(name, *_):
        frame = sys._getframe(1) if name == "scipy.linalg" else None
        while frame is not None:
            if frame.f_code.co_name == "ensure_blas":  # Numba's, at its start
                raise ImportError("Numba does without SciPy here")
            frame = frame.f_back


pathlib.Path.glob = _glob_on_the_small_machine
sys.meta_path.insert(0, _NoSciPyForNumba)
_nobody_is_told = sys.modules["numba.misc.coverage_support"] = types.ModuleType("numba.misc.coverage_support")
_nobody_is_told.get_registered_loc_notify = list

if "KEPT_COMPILED" in os.environ:
    _spec = importlib.util.spec_from_file_location("kept", pathlib.Path(__file__).parents[1] / "kept.py")
    sys.modules["kept"] = importlib.util.module_from_spec(_spec)
    _spec.loader.exec_module(sys.modules["kept"])
    sys.modules["kept"].CompiledOnce.install()
