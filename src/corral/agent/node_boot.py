"""A node's boot id: it is constant while any process of the node lives, and new after a
restart of the node."""

import os
from pathlib import Path
from typing import Final

from corral.domain.ids import BootId

FILE: Final = "boot"
_MACHINE: Final = Path("/proc/sys/kernel/random/boot_id")


def boot_id(node_dir: Path) -> BootId:
    """Return the node's boot id. A reboot of the machine, or removal of the file,
    creates a new one."""
    file = node_dir / FILE
    machine = _MACHINE.read_text().strip()
    try:
        known_machine, known_boot = file.read_text().split()
    except (FileNotFoundError, ValueError):
        known_machine, known_boot = "", ""
    if known_machine != machine:
        known_boot = os.urandom(8).hex()
        temporary_file = node_dir / f"{FILE}.new"
        temporary_file.write_text(f"{machine} {known_boot}\n")
        temporary_file.rename(file)
    return BootId(known_boot)
