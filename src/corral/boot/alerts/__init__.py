"""Delivery of alerts: their receivers and senders, and a record of sent messages."""

import socket
from collections.abc import Mapping
from pathlib import Path

from corral.boot.alerts.file import AlertFiles, DiskMemory
from corral.boot.alerts.senders import disks_of
from corral.control import Alerting, Control

__all__ = ["alerting_of"]


def alerting_of(control: Control, root: Path) -> Alerting:
    """Return the alerting that alerts.yaml in the cluster's directory describes. The
    file is read again after a change."""

    def disks() -> Mapping[str, tuple[int, int]]:
        return disks_of(root)

    files = AlertFiles(root / "alerts.yaml")
    memory = DiskMemory(root / "alerts.json")
    return Alerting(control, files.read, memory, disks, machine=socket.gethostname())
