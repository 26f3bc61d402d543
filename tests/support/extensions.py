"""Lay out a project with an extension in C, which is built by setuptools and not committed."""

from __future__ import annotations

from pathlib import Path

SOURCE = """
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <string.h>

static PyObject *copy(PyObject *self, PyObject *args) {
    Py_buffer to, from;
    if (!PyArg_ParseTuple(args, "w*y*", &to, &from)) return NULL;
    for (int i = 0; i < %d; i++) {
        memmove(to.buf, from.buf, from.len);
        __asm__ volatile("" ::: "memory");
    }
    PyBuffer_Release(&to);
    PyBuffer_Release(&from);
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {{"copy", copy, METH_VARARGS, ""}, {NULL}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "ext", "", -1, methods};
PyMODINIT_FUNC PyInit_ext(void) { return PyModule_Create(&module); }
"""
SETUP = """
from setuptools import Extension, setup
setup(name="ext-of-a-test", version="1", py_modules=[], ext_modules=[Extension("ext", ["ext.c"])])
"""
TEST = """
from pathlib import Path

import pytest

import ext

@pytest.mark.bandwidth(tolerance="30%")
def test_copy(bandwidth):
    x, y = bandwidth.random(1 << 20, "float32"), bandwidth.empty(1 << 20, "float32")
    bandwidth(ext.copy, y, x, reads=x, writes=y, code=Path(ext.__file__).read_bytes())
"""
IN_PLACE = "python setup.py -q build_ext --inplace"


def lay_out(folder: Path, times: int = 1) -> None:
    """Write source, set-up and test of an extension that copies so many times."""
    (folder / "ext.c").write_text(SOURCE % times)
    (folder / "setup.py").write_text(SETUP)
    (folder / "test_ext.py").write_text(TEST)
    (folder / ".gitignore").write_text("*.so\nbuild/\n*.egg-info/\n__pycache__/\n.pytest_cache/\n")
