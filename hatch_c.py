"""Changes that the build hook makes to the C code that mypyc generates.

Hot classes are acyclic (`mypyc_attr(acyclic=True)`): their objects have no header of the cyclic
collector, so that a million pending entries cost the collector nothing. mypyc 2.4 does not handle
two consequences: deallocators must not recurse along a chain of such objects, and the collector
must still find the cycles that lead through them.

`_NAMES` lists the classes and fields on which the C code below relies. If the generated code lacks
such a name, the build ends.
"""

import ast
import re
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Final

GROUP = "aiowheel._core"  # mypyc's shared library becomes aiowheel/_core__mypyc.<abi>.so


# Classes and fields of the package, `Class.field`, by their placeholders in the C code.
_NAMES: Final = {
    "node_next": "Node.next",
    "wheel_counts": "TimingWheel._counts",
    "wheel_finest": "TimingWheel._finest",
    "wheel_due": "TimingWheel._due",
    "wheel_overdue": "TimingWheel._overdue",
    "wheel_late": "TimingWheel._late",
    "counts_pending": "Counts.pending",
    "level_buckets": "Level.buckets",
    "level_coarser": "Level.coarser",
    "lists_by_key": "WatchLists.by_key",
    "lists_links": "WatchLists.links",
}


def change(source: Path, docstrings: dict[str, str]) -> None:
    """Apply every change to one generated C file, in place.

    Args:
        source: The generated file.
        docstrings: By the name in C; see `docstrings_of`.
    """
    generated = source.read_text()
    generated = add_fast_paths(release_types(report_failed_finalizers(generated)))
    generated = visit_once(generated)
    acyclic = _acyclic_classes(generated)
    if acyclic:
        structs = Structs(source.with_suffix(".h").read_text())
        generated = postpone_deep_deallocations(generated, acyclic)
        generated = report_cycles_to_the_collector(generated, acyclic, structs)
    generated = correct_files(replace_hot_functions(generated))
    source.write_text(add_docstrings(generated, docstrings))


# --- deallocation ---------------------------------------------------------------------------------

_DEALLOC = re.compile(
    r"static void\s+(?P<name>\w+)_dealloc\((?P<struct>\w+) \*self\)\s*\{"
    r"(?P<finalize>(?:(?!\bstatic\b).)*?)"
    r"(?:if \((?P<free>\w+_free_instance) == NULL\) \{\s*(?P=free) = self;"
    r"(?P<reset>(?:(?!\bstatic\b).)*?)return;\s*\}\s*)?"
    r"CPy_TRASHCAN_BEGIN\(self, (?P=name)_dealloc\)\s*"
    r"(?P<clear>\w+)\(\(PyObject \*\)self\);(?P<release>(?:(?!\bstatic\b).)*?)"
    r"CPy_TRASHCAN_END\(self\)\s*done: ;\s*\}",
    re.DOTALL,
)


def _acyclic_classes(generated: str) -> list[re.Match[str]]:
    """Return the deallocators of objects without a header of the collector."""
    return [
        dealloc
        for dealloc in _DEALLOC.finditer(generated)
        if "PyObject_GC_UnTrack" not in dealloc["finalize"]
    ]


def postpone_deep_deallocations(generated: str, acyclic: list[re.Match[str]]) -> str:
    """Give the deallocators of acyclic classes a trashcan of their own.

    CPython's trashcan postpones deallocations more than 50 levels deep, and for that writes into
    the collector's header. An acyclic object has no header, but mypyc 2.4 uses that trashcan
    nevertheless, which overwrites the memory before the object. Without any trashcan, freeing a
    long chain overflows the stack.

    The fields are cleared before the object is kept for reuse: clearing may run `__del__` methods
    of users, which may create an object and would then get a half-cleared one.
    """
    for dealloc in acyclic:
        whole = [
            _head(dealloc),
            "if (!aiowheel_dealloc_begins((PyObject *)self)) return;",
            dealloc["finalize"].strip(),
            f"{dealloc['clear']}((PyObject *)self);",
        ]
        if dealloc["free"]:
            reset = re.sub(r"Py_CLEAR\([^()]*\);", "", dealloc["reset"]).strip()
            whole.append(
                f"if ({dealloc['free']} == NULL) {{\n{reset}\n{dealloc['free']} = self;\n}} else"
            )
        whole.append(f"{{ {dealloc['release'].strip()} }}")
        if "goto done" in dealloc["finalize"]:
            whole.append("done: ;")
        whole.append("aiowheel_dealloc_ends();\n}")
        generated = generated.replace(dealloc[0], "\n".join(whole), 1)
    return _insert_after_includes(generated, _TRASHCAN)


def _head(dealloc: re.Match[str]) -> str:
    return f"static void\n{dealloc['name']}_dealloc({dealloc['struct']} *self)\n{{"


_TRASHCAN = r"""
#ifdef Py_GIL_DISABLED
#error "the statics below rely on the GIL"
#endif

/* Deallocators of acyclic objects deeper than this wait for the outermost one. All threads share
   the count, because one per thread costs 10 % of schedule and cancel: if a __del__ lets another
   thread run, a deep chain of that thread may wait until both are done. */
#define AIOWHEEL_DEEPEST 50
static int aiowheel_depth;
static PyObject *aiowheel_postponed;

/* Whether to continue. The first word, which held the reference count, holds the link to the
   next postponed object. */
static inline int aiowheel_dealloc_begins(PyObject *self)
{
    if (aiowheel_depth < AIOWHEEL_DEEPEST) {
        aiowheel_depth++;
        return 1;
    }
    memcpy((void *)self, &aiowheel_postponed, sizeof(PyObject *));
    aiowheel_postponed = self;
    return 0;
}

static void aiowheel_dealloc_postponed(void)
{
    while (aiowheel_postponed != NULL) { /* the depth stays 1: nested calls skip this loop */
        PyObject *self = aiowheel_postponed;
        memcpy(&aiowheel_postponed, (void *)self, sizeof(PyObject *));
        memset((void *)self, 0, sizeof(PyObject *));
        Py_TYPE(self)->tp_dealloc(self);
    }
}

static inline void aiowheel_dealloc_ends(void)
{
    if (aiowheel_depth == 1 && aiowheel_postponed != NULL) aiowheel_dealloc_postponed();
    aiowheel_depth--;
}
"""


def release_types(generated: str) -> str:
    """Make the deallocators in generated C release the reference of each object to its class.

    mypyc 2.4 keeps it: an interpreted class with a compiled base, for example one defined inside a
    function, is then never freed after it had an instance.
    """
    free = "Py_TYPE(self)->tp_free((PyObject *)self);"
    whole = f"{{ PyTypeObject *type = Py_TYPE(self); {free} Py_DECREF(type); }}"
    return generated.replace(free, whole)


_FINALIZE = re.compile(
    r"(static void\s+\w+_finalize\(PyObject \*self\)\s*\{)\s*(\w+\(self\);)\s*(\})"
)


def report_failed_finalizers(generated: str) -> str:
    """Make `__del__` report its exceptions, as Python's own classes do.

    mypyc 2.4 leaves the exception set when the collector calls `__del__`. The next finalizer then
    runs, and fails, with an exception that is not its own.
    """
    return _FINALIZE.sub(
        r"\1\n"
        r"PyObject *type, *value, *traceback;"
        r" PyErr_Fetch(&type, &value, &traceback);\n"
        r"\2\n"
        r"if (PyErr_Occurred() != NULL) PyErr_WriteUnraisable(self);\n"
        r"PyErr_Restore(type, value, traceback);\n"
        r"\3",
        generated,
    )


# --- the collector --------------------------------------------------------------------------------


class Structs:
    """The structs of compiled classes in mypyc's header, by the name of the class."""

    def __init__(self, header: str) -> None:
        self._bodies: dict[str, tuple[str, str]] = {}
        for body, name in re.findall(r"typedef struct \{([^{}]*)\} (\w+Object);", header):
            python_name = name.removesuffix("Object").rpartition("___")[2]
            self._bodies[python_name] = (name, body)

    def struct(self, class_name: str) -> str:
        """Return the C name of the struct of *class_name*."""
        if class_name not in self._bodies:
            sys.exit(f"hatch_c.py relies on a compiled class {class_name}, but there is none")
        return self._bodies[class_name][0]

    def field(self, class_name: str, field: str) -> str:
        """Return the C name of *field* in the struct of *class_name*."""
        self.struct(class_name)
        if re.search(rf"\b_{field};", self._bodies[class_name][1]) is None:
            sys.exit(f"hatch_c.py relies on {class_name}.{field}, but the class has no such field")
        return f"_{field}"


def report_cycles_to_the_collector(
    generated: str, acyclic: list[re.Match[str]], structs: Structs
) -> str:
    """Make wheels and watch lists report the references of the objects in their rings.

    The collector calls the traverse function of each object with a header. The objects in a ring
    have no header, so the traverse function of their owner reports for each of them, exactly once.
    It also reports an object that has other references. Therefore the owner's `__del__`, which the
    collector calls before it clears anything, must cut every reference of every object in its
    rings.
    """
    for dealloc in acyclic:
        name = dealloc["name"]
        body = _body(generated, f"static int32_t {dealloc['clear']}(PyObject *cpy_r_self)")
        held = dict.fromkeys(re.findall(r"Py_CLEAR\(([^()]*)\);", body))
        visits = [f"Py_VISIT({field});" for field in held]
        traverse = (
            f"static int\n{name}_traverse({dealloc['struct']} *self, visitproc visit, void *arg)\n"
            f"{{\n{' '.join(visits)}\nreturn 0;\n}}\n"
        )
        generated = generated.replace(_head(dealloc), traverse + _head(dealloc), 1)
        slot = f".tp_dealloc = (destructor){name}_dealloc,"
        generated = generated.replace(slot, f"{slot} .tp_traverse = (traverseproc){name}_traverse,")
    generated = _add_to_traverse(generated, structs.struct("TimingWheel"), "aiowheel_visit_wheel")
    generated = _add_to_traverse(generated, structs.struct("WatchLists"), "aiowheel_visit_lists")
    text = _VISITORS
    for name, place in _NAMES.items():
        class_name, _, field = place.partition(".")
        text = text.replace(f"@{name}@", structs.field(class_name, field))
        text = text.replace(f"@{name.partition('_')[0]}@", structs.struct(class_name))
    return _insert_after_includes(generated, text)


def visit_once(generated: str) -> str:
    """Make traverse functions report each field once.

    mypyc 2.4 repeats a field whose declaration a subclass repeats. The collector then counts more
    references than exist, considers the object in use, and never frees its cycle.
    """
    return _TRAVERSE.sub(_without_repeated_visits, generated)


_TRAVERSE = re.compile(
    r"_traverse\(\w+ \*self, visitproc visit, void \*arg\)\s*\{.*?return", re.DOTALL
)


def _without_repeated_visits(traverse: re.Match[str]) -> str:
    seen: set[str] = set()

    def first(visit: re.Match[str]) -> str:
        repeated = visit[0] in seen
        seen.add(visit[0])
        return "" if repeated else visit[0]

    return re.sub(r"Py_VISIT\([^;]*\);", first, traverse[0])


def _body(generated: str, head: str) -> str:
    start = generated.find(f"{head}\n")
    if start < 0:
        sys.exit(f"hatch_c.py does not find {head} in the C code of this mypyc")
    return generated[start : generated.index("return 0;", start)]


def _add_to_traverse(generated: str, struct: str, visitor: str) -> str:
    """Make the traverse function of *struct* end with a call of *visitor*."""
    traverse = re.compile(
        rf"(_traverse\({struct} \*self, visitproc visit, void \*arg\)\s*\{{[^{{}}]*)return rv;"
    )
    generated, found = traverse.subn(rf"\1return {visitor}(self, visit, arg);", generated)
    if found != 1:
        sys.exit(f"hatch_c.py does not find the traverse function of {struct}")
    return generated


_VISITORS = r"""
/* The most ring objects that one owner reports. A full collection visits each of them: half a
   millisecond for 10,000. For a million it would stall the program. */
#define AIOWHEEL_MOST_SHOWN 10000

/* Visit the references of the objects in the ring around `root`, `root` included. A ring that
   a running __del__ is taking apart ends where it is cut. */
static int
aiowheel_visit_ring(PyObject *root, Py_ssize_t *left, visitproc visit, void *arg)
{
    PyObject *node = root;
    do {
        if (!PyObject_IS_GC(node)) { /* the collector traverses one with a header */
            int rv = Py_TYPE(node)->tp_traverse(node, visit, arg);
            if (rv != 0) return rv;
        }
        node = ((@node@ *)node)->@node_next@;
    } while (node != NULL && node != Py_None && node != root && --*left >= 0);
    return 0;
}

/* After `__del__` has run, it cuts no more references, so nothing is reported from then on. */
static int
aiowheel_visit_wheel(@wheel@ *self, visitproc visit, void *arg)
{
    @counts@ *counts = (@counts@ *)self->@wheel_counts@;
    Py_ssize_t left = AIOWHEEL_MOST_SHOWN;
    if (counts == NULL || counts->@counts_pending@ <= 0 || counts->@counts_pending@ > left
        || PyObject_GC_IsFinalized((PyObject *)self)) return 0;
    PyObject *passing[] = {self->@wheel_due@, self->@wheel_overdue@, self->@wheel_late@};
    for (int i = 0; i < 3; i++) {
        int rv = passing[i] == NULL ? 0 : aiowheel_visit_ring(passing[i], &left, visit, arg);
        if (rv != 0) return rv;
    }
    PyObject *each = self->@wheel_finest@;
    while (each != NULL && each != Py_None) {
        @level@ *level = (@level@ *)each;
        PyObject *buckets = level->@level_buckets@;
        for (Py_ssize_t i = 0; buckets != NULL && i < PyList_GET_SIZE(buckets); i++) {
            int rv = aiowheel_visit_ring(PyList_GET_ITEM(buckets, i), &left, visit, arg);
            if (rv != 0) return rv;
        }
        each = level->@level_coarser@;
    }
    return 0;
}

static int
aiowheel_visit_lists(@lists@ *self, visitproc visit, void *arg)
{
    PyObject *by_key = self->@lists_by_key@, *key, *watchers;
    Py_ssize_t left = AIOWHEEL_MOST_SHOWN, place = 0;
    if (by_key == NULL || self->@lists_links@ > left || PyDict_GET_SIZE(by_key) > left
        || PyObject_GC_IsFinalized((PyObject *)self)) return 0;
    while (PyDict_Next(by_key, &place, &key, &watchers)) {
        int rv = aiowheel_visit_ring(watchers, &left, visit, arg);
        if (rv != 0) return rv;
    }
    return 0;
}
"""


def _insert_after_includes(generated: str, text: str) -> str:
    """Insert *text* after the first block of includes."""
    end = generated.index("\n", generated.rindex("#include", 0, generated.index("static "))) + 1
    return generated[:end] + text + generated[end:]


# --- calls ----------------------------------------------------------------------------------------


def add_fast_paths(generated: str) -> str:
    """Let plain calls skip the argument parser where mypyc 2.4 has no fast path itself.

    Constructors, and functions with `*args` or keyword-only arguments, interpret a format string at
    each call. A call with only the required arguments, all by position, does not need it; skipping
    it saves 6 % of call_later.
    """
    return _PARSE_TUPLE.sub(_with_fast_path, _PARSE_STACK.sub(_with_fast_path, generated))


_PARSE_STACK = re.compile(
    r"(?P<head>parser = \{\"(?P<star>%?)(?P<required>O+)[|$O]*:[^{}]*\};[^{}]*?)"
    r"(?P<parse>if \(!CPyArg_ParseStackAndKeywords\("
    r"args, nargs, kwnames, &parser, (?P<targets>[^()]*)\)\))"
)
_PARSE_TUPLE = re.compile(
    r"(?P<head>)(?P<star>)(?P<parse>if \(!CPyArg_ParseTupleAndKeywords\("
    r"args, kw, \"(?P<required>O+)[|$O]*\", \"\w+\", kwlist, (?P<targets>[^()]*)\)\))"
)


def _with_fast_path(wrapper: re.Match[str]) -> str:
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


# --- answers, files and docstrings ----------------------------------------------------------------


def replace_hot_functions(generated: str) -> str:
    """Replace a few functions on the hottest paths by C code.

    A call through the interpreter costs 20 to 30 ns, several times in every `call_later`. A call
    with an argument that has a default, which only tests make, still runs mypyc's code.
    """
    if "CPyDef__interpreter___monotonic_ns(" not in generated:
        return generated
    for head, answer in _ANSWERS.items():
        if f"{head} {{\n" not in generated:
            sys.exit(f"hatch_c.py relies on {head}, but the generated code has no such function")
        generated = generated.replace(f"{head} {{\n", f"{head} {{\n    {answer}\n")
    return generated


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
    "char CPyDef__interpreter___in_empty_context(PyObject *cpy_r__copy)": (
        "if (cpy_r__copy == NULL) {\n"
        "        PyObject *context = PyThreadState_Get()->context;\n"
        "        Py_ssize_t size = context == NULL ? 0 : PyObject_Size(context);\n"
        "        if (size < 0) return 2;\n"
        "        return size == 0;\n"
        "    }"
    ),
    # mypyc's `raise` creates a frame for the traceback, a quarter of the cost of a firing.
    "PyObject *CPyDef__driver___Bell_____next__(PyObject *cpy_r_self)": (
        "aiowheel___timer____driver___BellObject *bell = "
        "(aiowheel___timer____driver___BellObject *)cpy_r_self;\n"
        "    if (bell->__yielded || bell->__rung) {\n"
        "        bell->__yielded = bell->__rung = 0;\n"
        "        PyErr_SetNone(PyExc_StopIteration);\n"
        "        return NULL;\n"
        "    }"
    ),
    "int64_t CPyDef__level___first_flag(PyObject *cpy_r_occupied, int64_t cpy_r_start)": (
        "char *flags = PyByteArray_AS_STRING(cpy_r_occupied);\n"
        "    Py_ssize_t size = PyByteArray_GET_SIZE(cpy_r_occupied);\n"
        "    char *found = cpy_r_start < size"
        " ? memchr(flags + cpy_r_start, 1, size - cpy_r_start) : NULL;\n"
        "    return found == NULL ? -1 : (int64_t)(found - flags);"
    ),
    "char CPyDef__level___set_flag"
    "(PyObject *cpy_r_occupied, int64_t cpy_r_slot, int64_t cpy_r_flag)": (
        "PyByteArray_AS_STRING(cpy_r_occupied)[cpy_r_slot] = (char)cpy_r_flag; return 1;"
    ),
    "char CPyDef__callbacks___is_coroutine_function(PyObject *cpy_r_function)": (
        "if (PyCFunction_Check(cpy_r_function)) return 0;\n"
        "    PyObject *plain = PyMethod_Check(cpy_r_function)"
        " ? PyMethod_GET_FUNCTION(cpy_r_function) : cpy_r_function;\n"
        "    if (PyFunction_Check(plain)) {\n"
        "        PyCodeObject *code = (PyCodeObject *)PyFunction_GET_CODE(plain);\n"
        "        return (code->co_flags & (CO_COROUTINE | CO_ASYNC_GENERATOR"
        " | CO_ITERABLE_COROUTINE)) != 0;\n"
        "    }"
    ),
}


def correct_files(generated: str) -> str:
    """Make the modules in generated C carry the path of the file from which they were loaded.

    mypyc 2.4 derives `__file__` from the folder of the shared library and the full name of the
    module. It expects the library above the package, but this library lies inside.
    """
    patched = _LIBRARY_FILE.sub(r"\1file_above_package(\2)", generated)
    patched = _LIBRARY_FILE_ATTRIBUTE.sub(r"\1file_above_package(\2)", patched)
    if patched == generated:
        return generated
    *_, last_include = _INCLUDE.finditer(patched)
    end = last_include.end()
    return f"{patched[:end]}\n{_FILE_ABOVE_PACKAGE}{patched[end:]}"


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

/* The path of the library if it lay beside the package instead of inside. */
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


def add_docstrings(generated: str, docstrings: dict[str, str]) -> str:
    """Add the docstrings of modules, classes, functions, methods and properties to generated C.

    mypyc 2.4 writes only signatures.

    Args:
        generated: The text of a generated file.
        docstrings: By the name in C; see `docstrings_of`.
    """

    def with_docstring(place: re.Match[str]) -> str:
        docstring = docstrings.get(place["name"])
        if docstring is None:
            return place[0]
        signature = "" if place["doc"] == "NULL" else place["doc"]
        return f"{place['head']}{signature} {c_string(docstring)}{place['tail']}"

    def in_place_of_filler(place: re.Match[str]) -> str:
        docstring = docstrings.get(place["name"])
        if docstring is None:
            return place[0]
        value = place["value"]
        return (
            f"{value} = PyUnicode_InternFromString({c_string(docstring)});\n"
            f"    if ({value} == NULL) {{ PyErr_Clear(); {place['filler']} }}{place['rest']}"
        )

    for pattern in (_MODULE_DOC, _CLASS_DOC, _FUNCTION_DOC, _PROPERTY_DOC):
        generated = pattern.sub(with_docstring, generated)
    return _FILLER_DOC.sub(in_place_of_filler, generated)


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
# The docstrings of enumerations and named tuples, which stay interpreted classes.
_FILLER_DOC = re.compile(
    r"(?P<filler>(?P<value>\w+) = CPyStatics\[\d+\]; /\* 'mypyc filler docstring' \*/)"
    r"(?P<rest>.*?\bCPyType_(?P<name>\w+) = \(PyTypeObject \*\))",
    re.DOTALL,
)


def docstrings_of(root: Path, sources: list[str]) -> dict[str, str]:
    """Return the docstrings of *sources* by the names that mypyc gives to their owners in C.

    The name of a module in C is the shortest suffix of its full name that no other module has.
    Every suffix is tried, and one that two modules share belongs to neither.
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
