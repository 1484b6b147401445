"""A relocatable copy of this interpreter, of Corral and of their dependencies.

An init container adds it to an image that holds neither: python -m
corral.agent.self_contained FOLDER. The copy includes its own C library and loader, so
the image may have a different C library or none.
"""

import compileall
import os
import py_compile
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Final

import corral

NATIVE: Final = "native"  # shared libraries and their loader
REAL: Final = "python-real"
# What the agent and the library of jobs import; the rest of what Corral needs is the
# head's.
ROOTS: Final = (
    "cryptography",
    "msgspec",
    "nvidia-ml-py",
    "pydantic",
    "pyyaml",
    "websockets",
)
ELF: Final = b"\x7fELF"
# https://man7.org/linux/man-pages/man8/ld.so.8.html
WRAPPER: Final = f"""#!/bin/sh
at=${{0%/*}}
exec "$at/../{NATIVE}/ld.so" --argv0 "$0" --library-path "$at/../{NATIVE}" "$at/{REAL}" "$@"
"""
UNCHECKED: Final = py_compile.PycInvalidationMode.UNCHECKED_HASH
LEFT_OUT: Final = (
    "test",
    "idlelib",
    "tkinter",
    "turtledemo",
    "ensurepip",
    "lib2to3",
    "site-packages",
    "static",
    "_tkinter*",
    "pip",
    "setuptools",
    "__pycache__",
)
_NEEDS: Final = re.compile(r"(?:=>\s*|^\s*)(/\S+)", re.MULTILINE)
_NAME: Final = re.compile(r"[A-Za-z0-9._-]+", re.ASCII)


def bundle(into: Path) -> None:
    """Write the copy. Raises: OSError, subprocess.CalledProcessError."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    library = into / "lib" / version
    packages = library / "site-packages"
    binaries, native = into / "bin", into / NATIVE
    for folder in (binaries, native):
        folder.mkdir(parents=True)
    _copy_tree(Path(sysconfig.get_path("stdlib")), library)
    for distribution_name in sorted(
        {
            needed_name
            for name in ROOTS
            for needed_name in (name, *_required_packages(name))
        }
    ):
        _copy_distribution(distribution_name, packages)
    _copy_tree(Path(corral.__file__).parent, packages / "corral")
    shutil.copy(
        os.path.realpath(getattr(sys, "_base_executable", sys.executable)),
        binaries / REAL,
    )
    for file in [binaries / REAL, *_native_libraries(library)]:
        _copy_needed(file, native)
    # The folder is for reading alone where it is used.
    compileall.compile_dir(library, quiet=2, invalidation_mode=UNCHECKED)
    wrapper = binaries / "python3"
    wrapper.write_text(WRAPPER)
    wrapper.chmod(0o755)


def _required_packages(name: str, known_names: set[str] | None = None) -> set[str]:
    """Return the distributions that this distribution needs without its extras, and
    recursively those that they need."""
    known_names = set() if known_names is None else known_names
    try:
        requirements = distribution(name).requires or []
    except PackageNotFoundError:
        return known_names
    for requirement in requirements:
        match = _NAME.match(requirement)
        if "extra ==" not in requirement and match and match[0] not in known_names:
            known_names.add(match[0])
            _required_packages(match[0], known_names)
    return known_names


def _copy_distribution(name: str, into: Path) -> None:
    """Copy the files of the distribution that lie below site-packages. Copy nothing if
    it is not installed, as for a distribution for another system."""
    try:
        package = distribution(name)
    except PackageNotFoundError:
        return
    for file in package.files or ():
        if ".." not in file.parts and Path(str(package.locate_file(file))).is_file():
            target = into / file
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(str(package.locate_file(file)), target)


def _copy_tree(source: Path, into: Path) -> None:
    ignored = shutil.ignore_patterns(*LEFT_OUT, "config-*")
    shutil.copytree(source, into, ignore=ignored, dirs_exist_ok=True)


def _native_libraries(folder: Path) -> Iterator[Path]:
    for file in folder.rglob("*.so*"):
        with file.open("rb") as opened:
            if opened.read(4) == ELF:
                yield file


def _copy_needed(file: Path, native: Path) -> None:
    """Copy the shared libraries that the file is linked with, under the names by which
    the loader finds them."""
    done = subprocess.run(
        ["ldd", str(file)], capture_output=True, text=True, check=False
    )
    for library_path in _NEEDS.findall(done.stdout):
        name = Path(library_path).name
        target = native / ("ld.so" if name.startswith("ld-") else name)
        if not target.exists():
            shutil.copy(os.path.realpath(library_path), target)
            target.chmod(0o755)


if __name__ == "__main__":
    bundle(Path(sys.argv[1]))
