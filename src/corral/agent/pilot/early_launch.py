"""The shim's spec in the folder from the head, completed on the node, so that ranks
start without waiting for the agent or the head."""

import json
import os
import shutil
import socket
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from corral.agent.host_environment import (
    interface,
    interpreter,
    passed_on,
    with_active_environment,
)
from corral.wire.shim_spec import EARLY_FILE, WORKDIR_FILE, Early, decode_early

GRANTED: Final = "CUDA_VISIBLE_DEVICES"
LAUNCH: Final = "launch.json"
# maximum time for which the ranks have the node to themselves
BEGIN_SECONDS: Final = 0.5
STARTING: Final = b'"phase":"starting"'


def early_in(source: Path, host: Mapping[str, str]) -> Early | None:
    """Return the launch with which a pilot can start at once, read from the folder
    `source` and completed on the node; None if the pilot must ask the head for
    everything. `host` is the environment of the step.

    Raises: OSError, ValueError if the file cannot be read.
    """
    try:
        text = (source / EARLY_FILE).read_bytes()
    except FileNotFoundError:
        return None
    early = decode_early(text)
    gpus = granted_gpus(host.get(GRANTED))
    if early.counts_gpus and gpus is None:
        return None
    spec = early.spec
    early_environment = dict(early.launch["env"])
    env = with_active_environment(
        {**passed_on(host), **spec.env, **interpreter()}, early_environment
    )
    env |= interface(early.launch["nodes"], early.launch["node_rank"], spec.env)
    if early.counts_gpus and gpus is not None:
        env[GRANTED] = ",".join(
            str(gpus[int(index_text)]) for index_text in spec.env[GRANTED].split(",")
        )
    hidden = [*early.hidden, str(source)]
    return replace(early, spec=replace(spec, env=env), hidden=hidden)


def laid_out(early: Early, source: Path, node_dir: Path) -> Early | None:
    """Create the attempt's folder, unpack its workdir, and return the launch with these
    paths. Return None if the workdir cannot be read or its ranks have no account; the
    attempt's agent then reports that.

    Raises: OSError when the folder cannot be written.
    """
    account = _rank_account(early)
    if isinstance(account, str):
        return None
    folder = node_dir / "attempts" / f"{early.spec.job}.{early.spec.attempt}"
    work = folder / "work"
    folder.mkdir(mode=0o700)
    if early.launch["workdir"] is None:
        work.mkdir()
    elif not _unpack_archive(source / WORKDIR_FILE, work):
        shutil.rmtree(folder)
        return None
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    with os.fdopen(os.open(folder / LAUNCH, flags, 0o600), "w") as opened:
        json.dump(early.launch, opened)
    spec = replace(
        early.spec,
        folder=str(folder),
        work=str(work),
        group=folder.name,
        account=account,
    )
    return replace(early, spec=spec)


def _rank_account(early: Early) -> dict[str, Any] | None | str:
    """Return the account of the ranks; None for the pilot's own account; a text if the
    agent has to explain why they have none."""
    if os.geteuid() != 0:
        return None
    # only root changes the account
    from corral.agent.user_accounts import early_account

    return early_account(early.launch["owner"], is_container=early.isolation == "none")


def _unpack_archive(archive: Path, into: Path) -> bool:
    from corral.agent.unpack_workdir import (  # only a job with a workdir waits for it
        UNREADABLE,
        unpack,
    )

    try:
        unpack(archive, into)
    except UNREADABLE:
        return False
    return True


def send(early: Early, shim: socket.socket) -> None:
    """Send the new shim its spec, and wait until its ranks have begun or failed to
    begin. Errors are ignored, because the agent later finds the result in either case.
    """
    with suppress(OSError):
        shim.settimeout(BEGIN_SECONDS)
        shim.sendall(early.spec.encode())
        _until_begun(shim)


def _until_begun(shim: socket.socket) -> None:
    """Wait until the shim's ranks have begun.

    Raises: TimeoutError when this takes too long; OSError when the shim is gone.
    """
    output = b""
    while data := shim.recv(65536):
        output += data
        lines = output.splitlines()
        if output.endswith(b"\n") and STARTING not in lines[-1]:
            return


def granted_gpus(visible: str | None) -> tuple[int, ...] | None:
    """Return the indices of the granted GPUs from the text of the variable `visible`;
    None if the variable is unset or does not name them by index."""
    if visible is None:
        return None
    device_entries = [
        device_entry for device_entry in visible.split(",") if device_entry
    ]
    return (
        tuple(map(int, device_entries))
        if all(device_entry.isdigit() for device_entry in device_entries)
        else None
    )
