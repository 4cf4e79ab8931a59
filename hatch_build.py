"""Build hook: compile the hot modules with mypyc, or say why this build stays pure.

The modules are listed in pyproject.toml under `tool.hatch.build.targets.wheel.hooks.custom`.
Two environment variables, read at build time, decide:
`AIOWHEEL_NO_EXTENSIONS=1` skips compiling, `AIOWHEEL_REQUIRE_EXTENSIONS=1` makes a build fail that
cannot compile.

The stamp `_compiled.<abi>.txt` beside the compiled modules holds the hash of every compiled source:
`aiowheel/_build.py` reads it, so an older extension never shadows an edited source.
"""

import ast
import contextlib
import hashlib
import os
import re
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Generator
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PACKAGE = "aiowheel"
GROUP = f"{PACKAGE}._core"  # mypyc's shared library becomes aiowheel/_core__mypyc.<abi>.so
SUFFIX = EXTENSION_SUFFIXES[0]
ABI = SUFFIX.rpartition(".")[0]  # .cpython-311-x86_64-linux-gnu
STAMP = f"{PACKAGE}/_compiled{ABI}.txt"


class CompiledCoreHook(BuildHookInterface[Any]):
    """A build hook that puts the compiled modules into a wheel, or into an editable tree."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile and register the products; hatchling calls this before it packs the wheel."""
        root = Path(self.root)
        editable = version == "editable"
        if editable:
            remove_products(root)
        reason = reason_to_stay_pure()
        if reason is not None:
            stay_pure(reason)
            return
        sources = hot_sources(root, self.config["compile"])
        # Not removed after success: hatchling packs the wheel after this method returns.
        build_dir = root / "build" / f"mypyc{ABI}"
        try:
            products = compile_modules(root, sources, build_dir)
        except CompilerFailedError as error:
            shutil.rmtree(build_dir)
            stay_pure(str(error))
            return
        products[STAMP] = write_stamp(root, sources, build_dir, editable=editable)
        if editable:
            for name, product in products.items():
                shutil.copy2(product, root / name)
        else:
            build_data["force_include"].update({str(path): to for to, path in products.items()})
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
        print(f"aiowheel: compiled {len(sources)} modules with mypyc", file=sys.stderr)


class CompilerFailedError(Exception):
    """The C compiler built the probe but not the modules."""


def hot_sources(root: Path, patterns: list[str]) -> list[str]:
    """Return the paths of the modules to compile, from *root*; a plain path must exist."""
    found: set[str] = set()
    for pattern in patterns:
        matches = {path.relative_to(root).as_posix() for path in root.glob(pattern)}
        if not matches and "*" not in pattern:
            sys.exit(f"pyproject.toml lists {pattern} for compiling, but there is no such file")
        found |= {name for name in matches if not name.endswith("__init__.py")}
    return sorted(found)


def stay_pure(reason: str) -> None:
    """Announce that this build is pure; end the build where extensions are required."""
    if os.environ.get("AIOWHEEL_REQUIRE_EXTENSIONS") == "1":
        sys.exit(f"AIOWHEEL_REQUIRE_EXTENSIONS=1, but {reason}")
    announce(f"aiowheel: building WITHOUT compiled modules: {reason}")


def reason_to_stay_pure() -> str | None:
    """Return why nothing can or shall be compiled, or None."""
    if os.environ.get("AIOWHEEL_NO_EXTENSIONS") == "1":
        return "AIOWHEEL_NO_EXTENSIONS=1 is set"
    if sys.implementation.name != "cpython":
        return f"mypyc supports CPython only, this is {sys.implementation.name}"
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        # Importing such an extension turns the GIL on. Without the GIL its counts would be wrong.
        return "this Python is free-threaded, and code compiled by mypyc relies on the GIL"
    return compiler_fault()


def compiler_fault() -> str | None:
    """Compile a one-line extension; return what is missing (compiler, Python.h), or None."""
    from setuptools import Extension

    with tempfile.TemporaryDirectory() as scratch:
        probe = Path(scratch, "probe.c")
        probe.write_text("#include <Python.h>\nPyObject *PyInit_probe(void) { return NULL; }\n")
        # A failing compiler writes to descriptor 2; the reason below is enough.
        with silenced_stderr():
            try:
                build_extensions([Extension("probe", [str(probe)])], Path(scratch))
            except Exception as exc:  # distutils has a dozen ways to say "no compiler"
                return f"no working C compiler was found ({exc})"
    return None


def compile_modules(root: Path, sources: list[str], build_dir: Path) -> dict[str, Path]:
    """Compile *sources*; return where each product lies, by its path in the wheel.

    Raises:
        CompilerFailedError: The C compiler cannot build what mypyc generates.
    """
    from mypyc.build import mypycify

    shutil.rmtree(build_dir, ignore_errors=True)
    docstrings = docstrings_of(root, sources)
    with contextlib.chdir(copy_for_mypyc(root, build_dir / "src")):
        extensions = mypycify(
            [
                "--config-file=",  # `make lint` is strict; a user's build need not be
                "--ignore-missing-imports",
                "--follow-imports=silent",
                *sources,
            ],
            opt_level="3",
            target_dir=str(build_dir / "c"),
            group_name=GROUP,
        )
        for extension in extensions:
            for source in extension.sources:
                drop_trashcans(Path(source))
                let_go_of_types(Path(source))
                add_short_cuts(Path(source))
                answer_in_c(Path(source))
                correct_files(Path(source))
                add_docstrings(Path(source), docstrings)
            if sys.platform != "win32":
                # The modules are one shared library: the compiler may inline across them, which
                # makes call_later 8 % faster. Generated functions are long: the default limit
                # inlines hardly any; 4 % faster.
                extension.extra_compile_args = [
                    *extension.extra_compile_args,
                    "-fno-semantic-interposition",
                    "-finline-limit=300",
                ]
        try:
            build_extensions(extensions, build_dir)
        except Exception as error:  # as many kinds as distutils has ways to fail
            text = f"the C compiler failed at the generated code ({error})"
            raise CompilerFailedError(text) from error
    lib = build_dir / "lib"
    return {path.relative_to(lib).as_posix(): path for path in sorted(lib.rglob(f"*{SUFFIX}"))}


def copy_for_mypyc(root: Path, copy: Path) -> Path:
    """Copy the package to *copy*, with every `TypeAlias` replaced by `object`.

    mypyc would check an argument of a narrower type itself, before the package can raise its own
    error, which names the argument and the legal range. See `aiowheel/_types.py`.
    """
    shutil.copytree(
        root / PACKAGE,
        copy / PACKAGE,
        ignore=shutil.ignore_patterns("*.so", "*.pyd", "__pycache__"),
    )
    for source in copy.rglob("*.py"):
        source.write_text(without_aliases(source.read_text("utf-8")), "utf-8")
    return copy


def without_aliases(source: str) -> str:
    """Return *source* with every `TypeAlias` replaced by `object`."""
    return _ALIAS.sub(r"\1: TypeAlias = object", source)


_ALIAS = re.compile(r"^(\w+): TypeAlias = .*$", re.MULTILINE)


def drop_trashcans(source: Path) -> None:
    """Take CPython's trashcan out of the deallocators of acyclic classes in generated C.

    The trashcan queues objects that are freed more than 50 levels deep, such as a chain, by writing
    into the collector's header. Objects of acyclic classes have no such header, but mypyc 2.4
    generates the trashcan for them too, which overwrites the memory in front of the object.
    """
    source.write_text(_DEALLOC.sub(_without_trashcan, source.read_text()))


_DEALLOC = re.compile(
    r"\b(?P<name>\w+_dealloc)\([^;{}]*\)\s*\{"
    r"(?P<head>.*?)CPy_TRASHCAN_BEGIN\(self, (?P=name)\)(?P<body>.*?)CPy_TRASHCAN_END\(self\)",
    re.DOTALL,
)


def _without_trashcan(dealloc: re.Match[str]) -> str:
    if "PyObject_GC_UnTrack" in dealloc["head"]:
        return dealloc[0]
    whole = dealloc[0].replace(f"CPy_TRASHCAN_BEGIN(self, {dealloc['name']})", "")
    return whole.replace("CPy_TRASHCAN_END(self)", "")


def let_go_of_types(source: Path) -> None:
    """Have the deallocators in generated C release the reference an object holds to its class.

    mypyc 2.4 keeps that reference: an interpreted class with a compiled base, such as a class
    defined inside a function, is then never freed once it had an instance.
    """
    free = "Py_TYPE(self)->tp_free((PyObject *)self);"
    whole = f"{{ PyTypeObject *type = Py_TYPE(self); {free} Py_DECREF(type); }}"
    source.write_text(source.read_text().replace(free, whole))


def add_short_cuts(source: Path) -> None:
    """Let the simplest calls skip the argument parser where mypyc 2.4 does not do so itself.

    Constructors, and functions with `*args` or keyword-only arguments, interpret a format string at
    each call. A call that passes only the required arguments, all by position, does not need it.
    This makes call_later 6 % faster.
    """
    generated = _PARSE_STACK.sub(_with_short_cut, source.read_text())
    source.write_text(_PARSE_TUPLE.sub(_with_short_cut, generated))


_PARSE_STACK = re.compile(
    r"(?P<head>parser = \{\"(?P<star>%?)(?P<required>O+)[|$O]*:[^{}]*\};[^{}]*?)"
    r"(?P<parse>if \(!CPyArg_ParseStackAndKeywords\("
    r"args, nargs, kwnames, &parser, (?P<targets>[^()]*)\)\))"
)
_PARSE_TUPLE = re.compile(
    r"(?P<head>)(?P<star>)(?P<parse>if \(!CPyArg_ParseTupleAndKeywords\("
    r"args, kw, \"(?P<required>O+)[|$O]*\", \"\w+\", kwlist, (?P<targets>[^()]*)\)\))"
)


def _with_short_cut(wrapper: re.Match[str]) -> str:
    targets = [target.removeprefix("&") for target in wrapper["targets"].split(", ")]
    required = len(wrapper["required"])
    in_tuple = wrapper.re is _PARSE_TUPLE
    plain = "kw == NULL && PyTuple_GET_SIZE(args)" if in_tuple else "kwnames == NULL && nargs"
    given = "PyTuple_GET_ITEM(args, {})" if in_tuple else "args[{}]"
    steps: list[str] = []
    if wrapper["star"]:
        rest, keywords, *targets = targets
        if keywords != "NULL":  # a function with **kwargs
            return wrapper[0]
        steps.append(f"{rest} = PyTuple_New(0); if ({rest} == NULL) return NULL;")
    for place, target in enumerate(targets[:required]):
        steps.append(f"{target} = {given.format(place)};")
    short_cut = f"if ({plain} == {required}) {{ {' '.join(steps)} }} else "
    return wrapper["head"] + short_cut + wrapper["parse"]


def answer_in_c(source: Path) -> None:
    """Have the functions of `aiowheel/timer/_interpreter.py` answer in C, and one of `_callbacks.py`.

    A call through the interpreter costs 20 to 30 ns, several times in every `call_later`. Calls with
    an argument, which only tests make, go on to mypyc's code.
    """
    generated = source.read_text()
    for head, answer in _ANSWERS.items():
        generated = generated.replace(f"{head} {{\n", f"{head} {{\n    {answer}\n")
    source.write_text(generated)


_ANSWERS = {
    "int64_t CPyDef__interpreter___monotonic_ns(PyObject *cpy_r__read)": (
        "if (cpy_r__read == NULL) {\n"
        "#if PY_VERSION_HEX >= 0x030D0000\n"
        "        PyTime_t now; (void)PyTime_MonotonicRaw(&now); return (int64_t)now;\n"
        "#else\n"
        "        return (int64_t)_PyTime_GetMonotonicClock();\n"
        "#endif\n"
        "    }"
    ),
    "int64_t CPyDef__interpreter___thread_id(PyObject *cpy_r__read)": (
        "if (cpy_r__read == NULL) return (int64_t)PyThread_get_thread_ident();"
    ),
    "char CPyDef__callbacks___is_coroutine_function(PyObject *cpy_r_function)": (
        "if (PyFunction_Check(cpy_r_function)) {\n"
        "        PyCodeObject *code = (PyCodeObject *)PyFunction_GET_CODE(cpy_r_function);\n"
        "        return (code->co_flags & (CO_COROUTINE | CO_ASYNC_GENERATOR"
        " | CO_ITERABLE_COROUTINE)) != 0;\n"
        "    }"
    ),
}


def correct_files(source: Path) -> None:
    """Have the modules in generated C carry the path of the file they were loaded from.

    mypyc 2.4 derives `__file__` from the folder of the shared library and the full name of the
    module: it expects the library above the package, but this library lies inside.
    """
    generated = source.read_text()
    patched = _LIBRARY_FILE.sub(r"\1file_above_package(\2)", generated)
    patched = _LIBRARY_FILE_ATTRIBUTE.sub(r"\1file_above_package(\2)", patched)
    if patched != generated:
        *_, last_include = _INCLUDE.finditer(patched)
        end = last_include.end()
        source.write_text(f"{patched[:end]}\n{_FILE_ABOVE_PACKAGE}{patched[end:]}")


_INCLUDE = re.compile(r"^#include .*$", re.MULTILINE)
_LIBRARY_FILE = re.compile(
    r"(shared_lib_file = )PyObject_GetAttrString\((shared_lib), \"__file__\"\)"
)
_LIBRARY_FILE_ATTRIBUTE = re.compile(
    rf"(/\* '{re.escape(GROUP)}__mypyc' \*/[^{{}}]*\{{[^{{}}]*\}}\s*"
    r"\w+ = \w+\[\d+\]; /\* '__file__' \*/\s*\w+ = )CPyObject_GetAttr\((\w+), \w+\)"
)
_FILE_ABOVE_PACKAGE = """
static Py_ssize_t last_separator(PyObject *path, Py_ssize_t end) {
    Py_ssize_t slash = PyUnicode_FindChar(path, '/', 0, end, -1);
    Py_ssize_t backslash = PyUnicode_FindChar(path, '\\\\', 0, end, -1);
    Py_ssize_t last = slash > backslash ? slash : backslash;
    return last < 0 ? -1 : last;
}

/* Where the library would lie if it were beside the package and not inside. */
static PyObject *file_above_package(PyObject *library) {
    PyObject *file = PyObject_GetAttrString(library, "__file__");
    if (file == NULL) return NULL;
    Py_ssize_t end = PyUnicode_GetLength(file);
    if (end < 0) { Py_DECREF(file); return NULL; }
    Py_ssize_t name = last_separator(file, end);
    if (name < 0) return file;
    PyObject *folder = PyUnicode_Substring(file, 0, last_separator(file, name) + 1);
    PyObject *base = PyUnicode_Substring(file, name + 1, end);
    PyObject *above = folder && base ? PyUnicode_Concat(folder, base) : NULL;
    Py_XDECREF(folder);
    Py_XDECREF(base);
    Py_DECREF(file);
    return above;
}
"""


def add_docstrings(source: Path, docstrings: dict[str, str]) -> None:
    """Give generated C the docstrings of modules, classes, functions, methods and properties.

    mypyc 2.4 writes signatures only.

    Args:
        source: The generated file.
        docstrings: By the name in C; see `docstrings_of`.
    """

    def with_docstring(place: re.Match[str]) -> str:
        docstring = docstrings.get(place["name"])
        if docstring is None:
            return place[0]
        signature = "" if place["doc"] == "NULL" else place["doc"]
        return f"{place['head']}{signature} {c_string(docstring)}{place['tail']}"

    generated = source.read_text()
    for pattern in (_MODULE_DOC, _CLASS_DOC, _FUNCTION_DOC, _PROPERTY_DOC):
        generated = pattern.sub(with_docstring, generated)
    source.write_text(generated)


_DOC = r"(?P<doc>NULL|\"(?:[^\"\\]|\\.)*\")"
_MODULE_DOC = re.compile(
    rf"(?P<head>PyModuleDef_HEAD_INIT,\s*\"(?P<name>[\w.]+)\",\s*){_DOC}(?P<tail>, /\* docstring)"
)
_CLASS_DOC = re.compile(
    r"(?P<head>PyTypeObject CPyType_(?P<name>\w+)_template_ = \{[^{}]*\.tp_doc = PyDoc_STR\()"
    rf"{_DOC}(?P<tail>\))"
)
_FUNCTION_DOC = re.compile(
    r"(?P<head>\(PyCFunction\)CPyPy_(?P<name>\w+),\s*METH_[\w| ]+,\s*PyDoc_STR\()"
    rf"{_DOC}(?P<tail>\))"
)
_PROPERTY_DOC = re.compile(
    r"(?P<head>\(getter\)(?P<name>\w+),\s*(?:\(setter\)\w+|NULL), )"
    r"(?P<doc>NULL)(?P<tail>, NULL\})"
)


def docstrings_of(root: Path, sources: list[str]) -> dict[str, str]:
    """Return the docstrings of *sources* by the names that mypyc gives to their owners in C.

    The name of a module in C is the shortest end of its full name that no other module has: every
    end is tried, and one that two modules share belongs to neither.
    """
    docstrings: dict[str, str] = {}
    shared: set[str] = set()
    for source in sources:
        tree = ast.parse((root / source).read_bytes())
        parts = source.removesuffix(".py").split("/")
        if text := ast.get_docstring(tree):
            docstrings[".".join(parts)] = text
        for start in range(len(parts)):
            module = "___".join(parts[start:])
            for name, text in _docstrings_in(tree, module):
                if docstrings.setdefault(name, text) is not text:
                    shared.add(name)
    return {name: text for name, text in docstrings.items() if name not in shared}


def _docstrings_in(node: ast.Module | ast.ClassDef, owner: str) -> Generator[tuple[str, str]]:
    for each in node.body:
        if not isinstance(each, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        text = ast.get_docstring(each)
        name = f"{owner}___{each.name}"
        if isinstance(each, ast.ClassDef):
            yield from _docstrings_in(each, name)
        elif any(isinstance(by, ast.Name) and by.id == "property" for by in each.decorator_list):
            name = f"{owner}_get_{each.name}"
        if text:
            yield name, text


def c_string(text: str) -> str:
    """Return *text* as string literals of C, one for each line."""
    lines: list[str] = []
    for line in text.splitlines(keepends=True):
        characters = [
            chr(byte) if 32 <= byte < 127 and chr(byte) not in '"\\?' else f"\\{byte:03o}"
            for byte in line.encode()
        ]
        lines.append(f'"{"".join(characters)}"')
    return "\n".join(lines)


def build_extensions(extensions: list[Any], build_dir: Path) -> None:
    """Run setuptools' build_ext into `build_dir/lib`, without a setup.py."""
    from setuptools import Distribution
    from setuptools.command.build_ext import build_ext

    command = build_ext(Distribution({"name": PACKAGE, "ext_modules": extensions}))
    command.build_lib = str(build_dir / "lib")
    command.build_temp = str(build_dir / "temp")
    command.ensure_finalized()
    command.run()


def write_stamp(root: Path, sources: list[str], build_dir: Path, *, editable: bool) -> Path:
    """Write what was compiled from which source; `aiowheel/_build.py` is the reader."""
    lines = ["editable" if editable else "wheel"]
    for name in sources:
        status = (root / name).stat()
        text = (root / name).read_text("utf-8")
        # An edit during the compiling must not pass for what was compiled, which is a copy.
        unchanged = without_aliases(text) == (build_dir / "src" / name).read_text("utf-8")
        compiled_from = hash_of((root if unchanged else build_dir / "src") / name)
        fingerprint = f"{status.st_size}:{status.st_mtime_ns}:{status.st_ctime_ns}"
        known = editable and unchanged
        lines.append(f"{compiled_from} {fingerprint if known else '-'} {name}")
    stamp = build_dir / "stamp.txt"
    stamp.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return stamp


def hash_of(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal digits."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def remove_products(root: Path) -> None:
    """Remove the products of an earlier editable build for this interpreter from the tree."""
    for path in (root / PACKAGE).rglob(f"*{SUFFIX}"):
        path.unlink()
    (root / STAMP).unlink(missing_ok=True)


def announce(line: str) -> None:
    """Print *line*, and write it to the terminal as well: pip hides the output of a build."""
    print(line, file=sys.stderr, flush=True)
    requested = os.environ.get("AIOWHEEL_NO_EXTENSIONS") == "1"
    if not requested and not sys.stderr.isatty():
        with contextlib.suppress(OSError), Path("/dev/tty").open("w") as terminal:
            terminal.write(f"\n{line}\n")


@contextlib.contextmanager
def silenced_stderr() -> Generator[None, None, None]:
    """Redirect file descriptor 2 to the null device inside the block."""
    saved = os.dup(2)
    try:
        with Path(os.devnull).open("w") as null:
            os.dup2(null.fileno(), 2)
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
