"""Reports of saves that a rank sends to its shim, for the head."""

import time
from typing import Any

from corral.train.save.restore import RestoreCandidate
from corral.train.save.saver import Saved

SaveReport = dict[str, Any]


def complete_report(saved: Saved) -> SaveReport:
    """Return the report of a complete and durable save."""
    return {
        "step": saved.step,
        "attempt": saved.attempt,
        "path": str(saved.path),
        "manifest_sha256": saved.manifest_sha256,
        "size_bytes": saved.size_bytes,
        "seconds": saved.seconds,
        "stall_seconds": saved.stall_seconds,
        "metrics": saved.metrics,
        "saved_at": saved.saved_at,
    }


def quarantine_report(candidate: RestoreCandidate, why: str) -> SaveReport:
    """Return the report of a save that does not verify."""
    return {**_checked_save(candidate), "quarantined": why}


def verified_report(candidate: RestoreCandidate) -> SaveReport:
    """Return the report of a save that has been verified to resume from it."""
    return {
        **_checked_save(candidate),
        "verified_at": time.clock_gettime(time.CLOCK_REALTIME),
    }


def _checked_save(candidate: RestoreCandidate) -> SaveReport:
    return {
        "step": candidate.step,
        "attempt": candidate.attempt,
        "path": str(candidate.path),
        "manifest_sha256": candidate.manifest_sha256 or "",
        "size_bytes": 0,
        "seconds": 0.0,
        "stall_seconds": 0.0,
    }
