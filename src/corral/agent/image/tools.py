"""The programs that fetch and unpack images, by their command lines. Each call is bounded in time.

Command lines: podman(1) and docker(1) for OCI images, apptainer(1) for its own; all are the same in
every version of the last years.
"""

import json
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

OCI_TOOLS: Final = ("podman", "docker")
APPTAINER_TOOLS: Final = ("apptainer", "singularity")
PULL_SECONDS: Final = 3600.0
ANSWER_SECONDS: Final = 60.0
NEVER: Final = ("manifest unknown", "not found", "denied", "unauthorized", "invalid reference")


class ImageTrouble(Exception):
    """The image cannot be had. `infra`: it may be had another time, or elsewhere."""

    def __init__(self, why: str, *, infra: bool) -> None:
        super().__init__(why)
        self.infra = infra


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """An image that the tool has. `id` names its content."""

    id: str
    env: Mapping[str, str]


def tool_of(names: Sequence[str], image: str) -> str:
    """The first of these programs that is here. Raises: ImageTrouble."""
    for name in names:
        if shutil.which(name):
            return name
    raise ImageTrouble(
        f"the image {image} needs {' or '.join(names)}, and this node has neither", infra=False
    )


def oci_tool(image: str) -> str:
    """podman, else docker where its daemon answers. Raises: ImageTrouble."""
    if shutil.which("podman"):
        return "podman"
    tool = tool_of(OCI_TOOLS, image)
    asked = subprocess.run(
        [tool, "version"], capture_output=True, text=True, timeout=ANSWER_SECONDS
    )
    if asked.returncode != 0:
        raise ImageTrouble(f"docker does not answer: {_last(asked.stderr)}", infra=True)
    return tool


def found(tool: str, image: str) -> Found:
    """The image as the tool has it, pulled when it is not there. Raises: ImageTrouble."""
    known = _inspect(tool, image)
    if known is None:
        pulled = _call([tool, "pull", "--quiet", image], PULL_SECONDS)
        if pulled.returncode != 0:
            said = _last(pulled.stderr)
            never = any(word in pulled.stderr.lower() for word in NEVER)
            raise ImageTrouble(f"the image {image} cannot be pulled: {said}", infra=not never)
        # an archive is known by the id that the pull has told
        known = _inspect(tool, image) or _inspect(tool, pulled.stdout.strip())
    if known is None:
        raise ImageTrouble(f"{tool} has pulled {image} and does not know it", infra=True)
    return known


def unpack(tool: str, id: str, into: Path) -> None:
    """The image's files into the folder, with their owners where this account may give them.

    Raises: ImageTrouble, OSError.
    """
    made = _call([tool, "create", id, "true"], ANSWER_SECONDS)
    if made.returncode != 0:
        raise ImageTrouble(f"{tool} create fails: {_last(made.stderr)}", infra=True)
    container = made.stdout.split()[-1]
    try:
        with subprocess.Popen(
            [tool, "export", container], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
        ) as export:
            words = ["tar", "-x", "-p", "--numeric-owner", "-C", str(into)]
            tar = subprocess.run(words, stdin=export.stdout, capture_output=True, text=True)
        if export.returncode != 0 or tar.returncode != 0:
            raise ImageTrouble(f"the image cannot be unpacked: {_last(tar.stderr)}", infra=True)
    finally:
        _call([tool, "rm", "--force", container], ANSWER_SECONDS)


def apptainer_words(
    tool: str, file: str, *, seen: Sequence[str], work: str, gpu: bool
) -> list[str]:
    """What comes before a rank's own words, to run them in an Apptainer file: it takes the rank's
    environment along, keeps its process, and stays in its containment."""
    binds = [word for path in seen for word in ("--bind", path)]
    return [tool, "exec", "--no-home", *["--nv"] * gpu, *binds, "--pwd", work, file]


def driver_libraries() -> list[str]:
    """Files of the GPU driver that programs of CUDA link with; none without a driver."""
    if not Path("/dev/nvidiactl").exists() or not shutil.which("ldconfig"):
        return []
    listed = _call(["ldconfig", "-p"], ANSWER_SECONDS).stdout
    paths = [line.rpartition("=> ")[2].strip() for line in listed.splitlines() if "=> " in line]
    ours = [path for path in paths if Path(path).name.startswith(("libcuda.", "libnvidia-"))]
    return sorted(set(ours))


def _inspect(tool: str, image: str) -> Found | None:
    words = [tool, "image", "inspect", image, "--format", "{{.Id}} {{json .Config.Env}}"]
    asked = _call(words, ANSWER_SECONDS)
    if asked.returncode != 0:
        return None
    id, _, text = asked.stdout.strip().partition(" ")
    pairs = [one.partition("=") for one in json.loads(text or "null") or ()]
    env = {name: value for name, _, value in pairs}
    return Found(id=id.removeprefix("sha256:"), env=env)


def _call(words: Sequence[str], seconds: float) -> "subprocess.CompletedProcess[str]":
    """Raises: ImageTrouble when it takes too long."""
    try:
        return subprocess.run(
            words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=seconds
        )
    except subprocess.TimeoutExpired:
        raise ImageTrouble(f"{words[0]} {words[1]} takes over {seconds:g} s", infra=True) from None


def _last(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].strip() if lines else "it does not say why"
