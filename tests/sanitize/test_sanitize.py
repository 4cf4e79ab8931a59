"""The check can fail: the sanitizers report each fault that a small extension plants."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from unittest.mock import patch

import pytest
from setuptools import Extension

import hatch_build

from .sanitize import COMPILER, environment, runtime

pytestmark = [
    pytest.mark.linux,
    pytest.mark.one_build,
    pytest.mark.slow,
    pytest.mark.skipif(runtime() is None, reason="gcc has no sanitizers here"),
]

SOURCE = """
#include <Python.h>

static PyObject *past_the_end(PyObject *module, PyObject *number)
{
    char *block = PyObject_Malloc(8);
    char read = block[PyLong_AsLong(number)];
    PyObject_Free(block);
    return PyLong_FromLong(read);
}

static PyObject *after_free(PyObject *module, PyObject *number)
{
    PyObject *object = PyBytes_FromStringAndSize(NULL, 64);
    Py_DECREF(object); /* one too early */
    return PyLong_FromLong(PyBytes_AS_STRING(object)[PyLong_AsLong(number)]);
}

static PyObject *shift(PyObject *module, PyObject *number)
{
    return PyLong_FromLong(1L << PyLong_AsLong(number));
}

static PyMethodDef methods[] = {
    {"past_the_end", past_the_end, METH_O}, {"after_free", after_free, METH_O},
    {"shift", shift, METH_O}, {NULL},
};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "planted", NULL, -1, methods};

PyMODINIT_FUNC PyInit_planted(void) { return PyModule_Create(&module); }
"""


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compile the extension with the flags of the check; return the folder to import it from."""
    folder = tmp_path_factory.mktemp("planted")
    source = folder / "planted.c"
    source.write_text(SOURCE)
    with patch.dict(os.environ, COMPILER):
        hatch_build.build_extensions([Extension("planted", [str(source)])], folder)
    return folder / "lib"


def run(program: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a program with the sanitizers."""
    return subprocess.run(
        [sys.executable, "-c", program],
        env=environment(folder, "malloc"),
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("call", "report"),
    [
        ("past_the_end(8)", "heap-buffer-overflow"),
        ("after_free(8)", "heap-use-after-free"),
        ("shift(64)", "shift exponent 64 is too large"),
    ],
)
def test_a_planted_fault_is_reported(planted: Path, call: str, report: str) -> None:
    """The process ends with an error, and the report names the fault."""
    done = run(f"import planted; planted.{call}; print('not reached')", planted)

    assert done.returncode != 0
    assert report in done.stderr
    assert done.stdout == ""


def test_sound_code_is_not_reported(planted: Path) -> None:
    """The same functions with legal arguments end well."""
    done = run("import planted; planted.past_the_end(7); planted.shift(62)", planted)

    assert (done.returncode, done.stderr) == (0, "")
