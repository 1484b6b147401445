"""A container's memory limit, held by the kernel; over it the whole container is to be
killed.

https://kubernetes.io/docs/concepts/configuration/manage-resources-containers/#how-pods-with-resource-limits-are-run
(since Kubernetes 1.28 all of a container goes at once, on cgroup v2 by
memory.oom.group)."""

from contextlib import suppress
from pathlib import Path
from typing import Final

V1: Final = Path("/sys/fs/cgroup/memory")
V2: Final = Path("/sys/fs/cgroup")


class MemoryLimit:
    """A group of its own; nothing is held where no group can be made."""

    def __init__(self, name: str, limit_bytes: int | None) -> None:
        self._is_v1 = V1.is_dir()
        self._group = (V1 if self._is_v1 else V2) / name
        self.holds = False
        if limit_bytes is None:
            return
        with suppress(OSError):
            self._group.mkdir()
            if self._is_v1:
                self._write("memory.limit_in_bytes", str(limit_bytes))
                # over it they stand still, until `is_over`
                self._write("memory.oom_control", "1")
            else:
                self._write("memory.max", str(limit_bytes))
                self._write("memory.oom.group", "1")
            self.holds = True

    @property
    def enter(self) -> tuple[str, ...]:
        """Words before a command: it is in the group, and all that it will start."""
        if not self.holds:
            return ()
        return (
            "sh",
            "-c",
            'echo $$ > "$0"; exec "$@"',
            str(self._group / "cgroup.procs"),
        )

    @property
    def is_over(self) -> bool:
        """Whether it was too much."""
        if not self.holds:
            return False
        said = self._group / ("memory.oom_control" if self._is_v1 else "memory.events")
        words = dict(line.split() for line in said.read_text().splitlines())
        return words.get("under_oom" if self._is_v1 else "oom_kill", "0") != "0"

    def close(self) -> None:
        with suppress(OSError):
            self._group.rmdir()

    def _write(self, name: str, text: str) -> None:
        (self._group / name).write_text(text)
