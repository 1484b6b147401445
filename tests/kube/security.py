"""The security contexts of pods and containers, as far as processes of one machine can
have them.

https://kubernetes.io/docs/tasks/configure-pod-container/security-context/
"""

import os
import stat
from pathlib import Path

from tests.kube.kinds import Json


def as_user(pod: Json, container: Json) -> list[str]:
    """Words before a container's command that give it its user and take its
    capabilities."""
    own = {**_of(pod["spec"]), **_of(container)}
    words = []
    if "runAsUser" in own:
        words += [f"--reuid={own['runAsUser']}", f"--regid={own.get('runAsGroup', 0)}"]
        group = own.get("fsGroup")
        words += [f"--groups={group}"] if group is not None else ["--clear-groups"]
    if own.get("runAsNonRoot") and own.get("runAsUser", 0) == 0:
        raise OSError("container has runAsNonRoot and image will run as root")
    if "ALL" in (own.get("capabilities") or {}).get("drop", ()):
        words += ["--inh-caps=-all", "--bounding-set=-all"]
    if own.get("allowPrivilegeEscalation") is False:
        words += ["--no-new-privs"]
    return ["setpriv", *words] if words else []


def give_to_group(folder: Path, pod: Json) -> None:
    """Let the pod's fsGroup read and write a volume, all of it when its root is not the
    group's."""
    group = _of(pod["spec"]).get("fsGroup")
    if group is None or folder.stat().st_gid == group:
        return
    for at, folders, files in os.walk(folder):
        for path in (Path(at), *(Path(at, name) for name in (*folders, *files))):
            if path.is_symlink():
                continue
            os.chown(path, -1, group)
            mode = path.stat().st_mode
            path.chmod(stat.S_IMODE(mode) | (0o2070 if path.is_dir() else 0o060))


def _of(spec: Json) -> Json:
    return dict(spec.get("securityContext") or {})
