"""Replaces functions of an imported module by those of a changed source.

Code that runs at import has already had its effect, so only functions can be changed.
"""

from __future__ import annotations

import dis
import gc
import inspect
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from types import CodeType, FunctionType, ModuleType

#: Functions of a module with their new code.
Swap = list[tuple[FunctionType, CodeType]]


def swap_of(module: ModuleType, before: str, after: str) -> Swap | None:
    """Return the changes that turn the functions of *module* into those of the source *after*.

    The result is None if code outside functions differs, or if a changed function was not found.

    Raises:
        SyntaxError: *after* cannot be compiled.
    """
    file = str(module.__file__)
    old = compile(before, file, "exec", dont_inherit=True)
    new = compile(after, file, "exec", dont_inherit=True)
    functions = _functions_of(module)
    found: Swap = []
    for pair in _changed(old, new):
        living = functions.get(_place(pair[0]), []) if pair else []
        if pair is None or not living or pair[0].co_freevars != pair[1].co_freevars:
            return None
        found += [(function, pair[1]) for function in living]
    return found


@cache
def _functions_of(module: ModuleType) -> dict[tuple[str, int], list[FunctionType]]:
    found: dict[tuple[str, int], list[FunctionType]] = {}
    is_frozen = gc.get_freeze_count() > 0
    gc.unfreeze()  # because the collector does not list frozen objects
    for each in gc.get_objects():
        if isinstance(each, FunctionType) and each.__globals__ is vars(module):
            found.setdefault(_place(each.__code__), []).append(each)
    if is_frozen:
        gc.freeze()
    return found


def _place(code: CodeType) -> tuple[str, int]:
    return code.co_qualname, code.co_firstlineno


def _changed(before: CodeType, after: CodeType) -> Iterator[tuple[CodeType, CodeType] | None]:
    """Yield the old and new code of each changed function, and None for other changes."""
    if _alone(before) != _alone(after):
        yield None
        return
    for old, new in zip(_inner(before), _inner(after), strict=True):
        if old.co_flags & inspect.CO_OPTIMIZED:  # a function, not the body of a class
            if old != new:
                yield old, new
        else:
            yield from _changed(old, new)


def _inner(code: CodeType) -> list[CodeType]:
    return [each for each in code.co_consts if isinstance(each, CodeType)]


def _alone(code: CodeType) -> CodeType:
    """Return code without line numbers and without the code objects that it defines."""

    def placeless(constant: object) -> object:
        if isinstance(constant, CodeType):
            return constant.co_name
        # Since Python 3.13, the body of a class stores its own first line.
        is_line = constant == code.co_firstlineno and "__firstlineno__" in code.co_names
        return "__firstlineno__" if is_line else constant

    constants = tuple(placeless(each) for each in code.co_consts)
    bytecode = bytearray(code.co_code)
    for load, store in pairwise(dis.get_instructions(code)):
        # Since Python 3.14, a small number is in the instruction, not among the constants.
        if store.argval == "__firstlineno__" and load.opname == "LOAD_SMALL_INT":
            bytecode[load.offset + 1] = 0
    return code.replace(
        co_code=bytes(bytecode), co_consts=constants, co_linetable=b"", co_firstlineno=1
    )
