"""Files that the agent writes for a Ray program, and the command that starts the
program. This module runs in Corral's own Python."""

import json
import os
import zipfile
from pathlib import Path
from typing import Final

import corral.agent
from corral.domain.desired_state import Launch
from corral.domain.units import MILLIS_PER_CPU

FOLDER: Final = "ray"
STARTER: Final = "starter.pyz"
_AGENT: Final = Path(corral.agent.__file__).parent
_MODULES: Final = (
    "batch/frames.py",
    *(
        f"ray_program/{name}.py"
        for name in (
            "count",
            "first_node",
            "ray_node",
            "member",
            "other_node",
            "refusals",
        )
    ),
)
_HAS_RAY: Final = (
    "import importlib.util as u, sys; sys.exit(u.find_spec('ray') is None)"
)
# The first Python that has Ray; without one the first of all, which says so.
_COMMAND: Final = """\
some=
for one in "$PWD/.venv/bin/python3" python3 python; do
  command -v "$one" >/dev/null 2>&1 || continue
  some=${{some:-$one}}
  (cd / && "$one" -c "{has_ray}") 2>/dev/null && {{ some=$one; break; }}
done
[ -n "$some" ] || {{ echo "corral: kind: ray needs a python3 with ray on the PATH" >&2; exit 1; }}
exec 3<. && cd -P ../{folder} && exec "$some" /proc/self/fd/4 4<{starter}
"""


def lay_out(attempt: Path, launch: Launch) -> Path:
    """Create the folder for the attempt's Ray, which only its user may open.

    Raises: OSError when this fails.
    """
    folder = attempt / FOLDER
    folder.mkdir(mode=0o700, exist_ok=True)
    with zipfile.ZipFile(folder / STARTER, "w") as starter:
        for package in ("", "agent/", "agent/batch/", "agent/ray_program/"):
            starter.writestr(f"corral/{package}__init__.py", "")
        for module in _MODULES:
            starter.write(_AGENT / module, f"corral/agent/{module}")
        starter.write(_AGENT / "ray_program" / "__main__.py", "__main__.py")
    member = folder / "member.json"
    with os.fdopen(
        os.open(member, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w"
    ) as file:
        json.dump(member_of(launch), file)
    return folder


def member_of(launch: Launch) -> dict[str, object]:
    """Return the content of the member file of a node. A fraction of a core or GPU
    counts as a whole one, because Ray has only whole ones."""
    seat = launch.seat
    return {
        "run": launch.run,
        "cpus": max(1, seat.cpu_millis // MILLIS_PER_CPU),
        "gpus": len(seat.slices) or len(seat.gpus),
        "memory_bytes": seat.memory_bytes,
    }


def command() -> str:
    """Return the rank's command, to run in the work folder, which lies next to the Ray
    folder.

    The command uses no absolute path, because parent folders may be closed to the
    rank's user.
    """
    return _COMMAND.format(has_ray=_HAS_RAY, folder=FOLDER, starter=STARTER)
