"""systemd units that keep running the head of a directory, or the agent of a node that
has joined."""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from corral.boot.join import Joined
from corral.boot.settings import ClusterDir
from corral.domain.errors import Conflict

HEAD: Final = "corral-head.service"
NODE: Final = "corral-node.service"
SYSTEM: Final = Path("/etc/systemd/system")
_RUNS: Final = Path("/run/systemd/system")  # there while systemd is process 1
_CALL_SECONDS: Final = 60.0
# What it has started goes on when it ends or is started again (KillMode): jobs outlive
# the head, the agent and an upgrade of both. Its end by `corral down` is meant, and not
# undone (on-failure);
# 3 is a refusal, which would only be repeated.
TEMPLATE: Final = """\
[Unit]
Description={about}
After=network-online.target time-sync.target
Wants=network-online.target
StartLimitIntervalSec=0

[Service]
Type=exec
ExecStart={command}
Restart=on-failure
RestartSec=1
RestartPreventExitStatus=3
KillMode=process
Delegate=yes
UMask=0077
LimitNOFILE=65536
TasksMax=infinity

[Install]
WantedBy={target}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """Name and full text of a systemd unit. `user`: the unit belongs to a user's
    systemd, not to the system's."""

    name: str
    text: str
    user: bool

    @property
    def file(self) -> Path:
        if not self.user:
            return SYSTEM / self.name
        home = os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
        return Path(home) / "systemd" / "user" / self.name

    @property
    def systemctl(self) -> list[str]:
        return ["systemctl", "--user"] if self.user else ["systemctl"]


def unit_of(
    place: ClusterDir,
    node: Path | None,
    python: str,
    *,
    user: bool,
    ray: Path | None = None,
) -> Unit:
    """Return the systemd unit of the head, or of a node.

    `node`: the folder of the node in a directory that has joined; None for the head.
    `python`: the interpreter that runs the program. `ray`: the folder of a Ray node,
    which starts the agent itself.
    """
    if ray is not None:
        name, about = NODE, f"Corral, the Ray node of {place.root}"
        command = [python, "-P", "-m", "corral.engines.ray.member", str(ray)]
    elif node is None:
        name, about = HEAD, f"Corral, the head of {place.root}"
        command = [python, "-P", "-m", "corral.boot.head", "--dir", str(place.root)]
    else:
        name, about = NODE, f"Corral, node {node.name}"
        command = [python, "-P", "-m", "corral.agent", str(node)]
    text = TEMPLATE.format(
        about=about.replace("%", "%%"),
        command=" ".join(map(_quote_exec_word, command)),
        target="default.target" if user else "multi-user.target",
    )
    return Unit(name=name, text=text, user=user)


def _quote_exec_word(word: str) -> str:
    """Quote one word of ExecStart (systemd.service(5), "Command lines";
    systemd.unit(5), specifiers)."""
    plain = (
        word.replace("\\", "\\\\")
        .replace('"', '\\"')
        .replace("%", "%%")
        .replace("$", "$$")
    )
    return (
        f'"{plain}"' if any(character in word for character in " \t\"';\\") else plain
    )


def here(place: ClusterDir, *, user: bool, installs: bool = True) -> Unit:
    """Return the systemd unit for the head or node of this directory. `installs`:
    whether the unit is about to be written or removed, for which a unit of the system
    needs root.

    Raises: Conflict if the directory has no cluster and no node, or if only root may
    install the unit.
    """
    joined = Joined.load(place)
    if joined is None and not place.cluster_json.exists():
        raise Conflict(
            f"there is neither a cluster nor a node in {place.root}",
            hint="create one first: corral up, or corral join URL --token TOKEN",
        )
    if installs and not user and os.geteuid() != 0:
        raise Conflict(
            "only root may install a systemd unit for the whole machine",
            hint="run: corral unit install --user; or run it as root",
        )
    if joined is None:
        return unit_of(place, None, sys.executable, user=user)
    ray = joined.ray_dir if joined.on_ray else None
    return unit_of(place, joined.dir, sys.executable, user=user, ray=ray)


def install(unit: Unit) -> bool:
    """Write the unit and enable it, so that it starts with the machine; return False if
    systemd does not run.

    Raises: Conflict when a unit of this name belongs to another cluster, or systemd
    does not accept it.
    """
    installed_text = unit.file.read_text() if unit.file.exists() else unit.text
    if _exec_start_line(installed_text) != _exec_start_line(unit.text):
        raise Conflict(
            f"{unit.file} belongs to another cluster: "
            f"{_exec_start_line(installed_text)}",
            hint=f"check this unit and remove it first: {' '.join(unit.systemctl)} "
            f"disable --now {unit.name}; rm {unit.file}",
        )
    unit.file.parent.mkdir(parents=True, exist_ok=True)
    unit.file.write_text(unit.text)
    if not _may_call(unit):
        return False
    _call_systemctl(unit, "daemon-reload")
    _call_systemctl(unit, "enable", unit.name)
    return True


def remove(unit: Unit) -> bool:
    """Remove the unit; running processes continue. Return False if this directory has
    no unit.

    Raises: Conflict if systemd does not release it.
    """
    if not unit.file.exists() or _exec_start_line(
        unit.file.read_text()
    ) != _exec_start_line(unit.text):
        return False
    if _may_call(unit):
        _call_systemctl(unit, "disable", unit.name)
    unit.file.unlink()
    if _may_call(unit):
        _call_systemctl(unit, "daemon-reload")
    return True


def _exec_start_line(text: str) -> str:
    return next(
        (line for line in text.splitlines() if line.startswith("ExecStart=")), ""
    )


def _may_call(unit: Unit) -> bool:
    return shutil.which("systemctl") is not None and (unit.user or _RUNS.exists())


def _call_systemctl(unit: Unit, *words: str) -> None:
    """Run systemctl with these arguments. Raises: Conflict with the error message of
    systemctl if it fails."""
    command = [*unit.systemctl, *words]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=_CALL_SECONDS
    )
    if done.returncode != 0:
        raise Conflict(
            f"{' '.join(command)} failed: {done.stderr.strip()[:300]}",
            hint=f"check the unit file: {unit.file}",
        )
