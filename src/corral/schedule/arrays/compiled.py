"""Compilation of functions by numba where it is installed; otherwise they run as plain
Python.

The core of the scheduler is written as scalar loops over columns. Both ways decide the
same; a test compares them. With `sys.modules["numba"] = None` before the import, the
core runs without numba.
"""

from collections.abc import Callable
from functools import cache, partial
from hashlib import sha256
from importlib import import_module
from importlib.util import find_spec
from pkgutil import walk_packages
from typing import Any, Final, Literal, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])
Kind = Literal["int", "float", "bool"]

IS_COMPILED: Final = find_spec("numba") is not None


def compiled(function: F) -> F:
    """Return the function, compiled at its first call and cached on disk; without
    numba, return it unchanged.

    A compiled function must not allocate memory. Its arrays are passed without
    reference counting (`_nrt`), which is 30 to 100 times as fast where columns are
    passed from function to function. numba caches code by the text of one file. Because
    functions of one file are compiled into those of others, the cache key here is the
    text of their whole packages.
    """
    if not IS_COMPILED:
        return function
    njit: Any = import_module("numba").njit
    compiled_function = njit(cache=True, _nrt=False)(function)
    cache_file = compiled_function._cache._cache_file
    own_package = function.__module__.rpartition(".")[0]
    cache_file._source_stamp = (
        cache_file._source_stamp,
        _text_of(own_package),
        _text_of(__package__ or ""),
    )
    cache_file._load_index = partial(_read_cache_index, cache_file._load_index)
    return cast(F, compiled_function)


def _read_cache_index(load: Callable[[], dict[Any, Any]]) -> dict[Any, Any]:
    """Return the index of the cache. Return an empty one if an older version cached
    classes that were moved or removed, because numba loads these classes before it
    compares the versions."""
    try:
        return load()
    except (ImportError, AttributeError):
        return {}


def must_compile(function: Callable[..., Any]) -> bool:
    """Return whether the first call of the function must compile it, because the cache
    on disk has no version of its exact text."""
    return IS_COMPILED and not cast(Any, function)._cache._cache_file._load_index()


@cache
def _text_of(package: str) -> str:
    """Return a digest of the source of all modules in a package and its subpackages."""
    digest = sha256()
    room = find_spec(package) if package else None
    inside = (room and room.submodule_search_locations) or ()
    for module in walk_packages(inside, f"{package}."):
        spec: Any = module.module_finder.find_spec(module.name, None)
        digest.update(spec.loader.get_source(module.name).encode())
    return digest.hexdigest()


def column(length: int, kind: Kind, fill: float = 0) -> Any:
    """Return a column of `length` numbers, all equal to `fill`: a numpy array (int64,
    float64, bool) with numba, a list without."""
    if IS_COMPILED:
        import numpy

        return numpy.full(
            length, fill, dtype={"int": "int64", "float": "float64"}.get(kind, kind)
        )
    return [{"int": int, "float": float, "bool": bool}[kind](fill)] * length
