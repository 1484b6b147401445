"""The programs that fetch images, and their command lines. Each call has a time limit.

The command lines are those of podman(1) and docker(1) for OCI images and of
apptainer(1) for Apptainer images; they are the same in all versions of recent years.
Each program runs as an account of the node; None means the agent's own account.
"""

import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from corral.agent.image.account import ImageAccount

OCI_TOOLS: Final = ("podman", "docker")
APPTAINER_TOOLS: Final = ("apptainer", "singularity")
PULL_SECONDS: Final = 3600.0
ANSWER_SECONDS: Final = 60.0
NEVER: Final = (
    "manifest unknown",
    "not found",
    "denied",
    "unauthorized",
    "invalid reference",
)
ID: Final = re.compile(r"\w[\w.-]{0,127}", re.ASCII)  # it becomes the name of a folder
_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_FORMAT: Final = "{{.Id}} {{json .Config.Env}} {{json .RepoDigests}}"


class ImageTrouble(Exception):
    """The image is not available. `infra`: it may be available later, or on another
    node."""

    def __init__(self, why: str, *, infra: bool) -> None:
        super().__init__(why)
        self.infra = infra


@dataclass(frozen=True, slots=True, kw_only=True)
class PulledImage:
    """An image that a tool (such as podman) has. `id` identifies its content; `digest`
    is its digest in a registry. `env` has its environment variables."""

    id: str
    env: Mapping[str, str] = field(default_factory=dict)
    digest: str = ""


def tool_of(names: Sequence[str], image: str) -> str:
    """Return the first of these programs that this node has.

    Raises: ImageTrouble when it has none.
    """
    for name in names:
        if shutil.which(name):
            return name
    raise ImageTrouble(
        f"the image {image} requires {' or '.join(names)}, but this node has neither",
        infra=False,
    )


def oci_tool(image: str) -> str:
    """Return podman, or docker if podman is missing and docker's daemon answers.

    Raises: ImageTrouble when neither can be used.
    """
    if shutil.which("podman"):
        return "podman"
    tool = tool_of(OCI_TOOLS, image)
    completed_process = _run_tool([tool, "version"], ANSWER_SECONDS)
    if completed_process.returncode != 0:
        raise ImageTrouble(
            f"docker does not answer: {last_line(completed_process.stderr)}", infra=True
        )
    return tool


def is_own_tool(tool: str, account: ImageAccount) -> bool:
    """Return whether the account can use the tool itself, by rootless podman or
    docker's socket."""
    probe_command = [tool, "info"] if tool == "podman" else [tool, "version"]
    try:
        return _run_tool(probe_command, ANSWER_SECONDS, account).returncode == 0
    except (ImageTrouble, OSError):
        return False


def found(tool: str, image: str, account: ImageAccount | None = None) -> PulledImage:
    """Return the image from the tool's storage for the account; pull it first if it is
    missing.

    Raises: ImageTrouble when it cannot be pulled.
    """
    pulled_image = _inspect_image(tool, image, account)
    if pulled_image is None:
        pulled = _run_tool([tool, "pull", "--quiet", image], PULL_SECONDS, account)
        _check_pull(image, pulled)
        pulled_image = _inspect_image(tool, image, account) or _inspect_image(
            tool, pulled.stdout.strip(), account
        )
    if pulled_image is None:
        raise ImageTrouble(
            f"{tool} pulled {image}, but does not list it afterwards", infra=True
        )
    return pulled_image


def pulled(tool: str, reference: str, *, credentials: bool) -> PulledImage:
    """Pull the image as its registry has it now, even if this account has an image
    under that name.

    Args:
        credentials: whether the account's own credentials for the registry are used.
            Without them, only images that anyone may pull can be pulled.

    Raises: ImageTrouble when it cannot be pulled.
    """
    with tempfile.TemporaryDirectory(prefix="corral-image-") as config_dir:
        pull_command = [tool, "pull", "--quiet", reference]
        extra = {}
        if not credentials:
            Path(config_dir, "config.json").write_text("{}")
            extra = {
                "REGISTRY_AUTH_FILE": f"{config_dir}/config.json",
                "DOCKER_CONFIG": config_dir,
            }
        done = _run_tool(pull_command, PULL_SECONDS, extra=extra)
    _check_pull(reference, done)
    pulled_image = _inspect_image(tool, done.stdout.strip() or reference, None)
    if pulled_image is None:
        raise ImageTrouble(
            f"{tool} pulled {reference}, but does not list it afterwards", infra=True
        )
    return pulled_image


def created(tool: str, id: str, account: ImageAccount | None) -> str:
    """Create a container of the image, and return the container's id. The container
    never runs; it serves to export the image's files.

    Raises: ImageTrouble when the tool fails.
    """
    create_result = _run_tool([tool, "create", id, "true"], ANSWER_SECONDS, account)
    if create_result.returncode != 0:
        raise ImageTrouble(
            f"{tool} create failed: {last_line(create_result.stderr)}", infra=True
        )
    return create_result.stdout.split()[-1]


def removed(tool: str, container: str, account: ImageAccount | None) -> None:
    _run_tool([tool, "rm", "--force", container], ANSWER_SECONDS, account)


def export_of(
    tool: str, container: str, account: ImageAccount | None
) -> "subprocess.Popen[bytes]":
    """Start a process that writes the container's files as a tar stream to its stdout."""
    return subprocess.Popen(
        [tool, "export", container],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        **_account_arguments(account),
    )


def may_read(path: str, account: ImageAccount | None) -> bool:
    """Return whether the account may read this file."""
    return _run_tool(["test", "-r", path], ANSWER_SECONDS, account).returncode == 0


def apptainer_words(
    tool: str, file: str, *, seen: Sequence[str], work: str, gpu: bool
) -> list[str]:
    """Return the command prefix that runs a rank in an Apptainer file, in the folder
    `work`, with the paths in `seen` visible. The rank keeps its environment, its
    process and its containment."""
    binds = [bind_argument for path in seen for bind_argument in ("--bind", path)]
    return [tool, "exec", "--no-home", *["--nv"] * gpu, *binds, "--pwd", work, file]


def driver_libraries() -> list[str]:
    """Return the GPU driver's library files that CUDA programs link with; an empty list
    without a driver."""
    if not Path("/dev/nvidiactl").exists() or not shutil.which("ldconfig"):
        return []
    listed = _run_tool(["ldconfig", "-p"], ANSWER_SECONDS).stdout
    paths = [
        line.rpartition("=> ")[2].strip()
        for line in listed.splitlines()
        if "=> " in line
    ]
    ours = [
        path for path in paths if Path(path).name.startswith(("libcuda.", "libnvidia-"))
    ]
    return sorted(set(ours))


def last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].strip() if lines else "no error message"


def _check_pull(image: str, done: "subprocess.CompletedProcess[str]") -> None:
    """Check the result `done` of the pull command.

    Raises: ImageTrouble when the pull failed.
    """
    if done.returncode == 0:
        return
    never = any(error_phrase in done.stderr.lower() for error_phrase in NEVER)
    last_error = last_line(done.stderr)
    raise ImageTrouble(
        f"the image {image} cannot be pulled: {last_error}", infra=not never
    )


def _inspect_image(
    tool: str, image: str, account: ImageAccount | None
) -> PulledImage | None:
    inspect_command = [tool, "image", "inspect", image, "--format", _FORMAT]
    completed_process = _run_tool(inspect_command, ANSWER_SECONDS, account)
    if completed_process.returncode != 0:
        return None
    try:
        return _found_in(completed_process.stdout.strip())
    except (ValueError, TypeError, AttributeError) as wrong:
        raise ImageTrouble(
            f"the output of {tool} image inspect {image} is not valid", infra=True
        ) from wrong


def _found_in(text: str) -> PulledImage:
    """Parse the tool's JSON description of an image, and return the image.

    Raises: ValueError, TypeError, AttributeError when its format is unexpected.
    """
    id, _, rest = text.partition(" ")
    id = id.removeprefix("sha256:")
    if ID.fullmatch(id) is None:
        raise ValueError("the image id is not a valid name")
    decoder = json.JSONDecoder()
    env, env_end = decoder.raw_decode(rest) if rest else (None, 0)
    digests, _ = (
        decoder.raw_decode(rest[env_end:].strip())
        if rest[env_end:].strip()
        else (None, 0)
    )
    pairs = [str(variable).partition("=") for variable in env or ()]
    known_digests = [str(digest).partition("@")[2] for digest in digests or ()]
    return PulledImage(
        id=id,
        env={name: value for name, _, value in pairs},
        digest=known_digests[0] if known_digests else "",
    )


def _run_tool(
    words: Sequence[str],
    seconds: float,
    account: ImageAccount | None = None,
    extra: Mapping[str, str] | None = None,
) -> "subprocess.CompletedProcess[str]":
    """Run the command `words` as the account, for at most `seconds`.

    Raises: ImageTrouble when it takes longer.
    """
    try:
        return subprocess.run(
            words,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=seconds,
            **_account_arguments(account, extra),
        )
    except subprocess.TimeoutExpired:
        raise ImageTrouble(
            f"{words[0]} {words[1]} did not end within {seconds:g} s", infra=True
        ) from None


def _account_arguments(
    account: ImageAccount | None, extra: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Return the arguments of `subprocess` that run a program as the account, without
    the agent's environment or groups."""
    if account is None:
        return {"env": {**os.environ, **extra}} if extra else {}
    env = {**account.env, "PATH": os.environ.get("PATH", _PATH), **(extra or {})}
    runtime = f"/run/user/{account.uid}"
    if os.path.isdir(runtime):
        env["XDG_RUNTIME_DIR"] = runtime
    return {
        "user": account.uid,
        "group": account.groups[0],
        "extra_groups": account.groups,
        "env": env,
        "cwd": "/",
        "umask": 0o077,
    }
