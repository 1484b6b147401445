"""Users are apart where they share a node, or the cluster says where they are not."""

import re
from pathlib import Path
from typing import Final

import pytest

from corral.domain.errors import Forbidden
from corral.domain.user_isolation import Surface
from tests.contracts.engines.landlord import HOUR, Landlord, Tenant
from tests.contracts.engines.meeting import (
    CANARY,
    OWN,
    SECOND,
    TEMPORARY,
    Meeting,
    client_of,
    meet,
)

PAGE: Final = Path(__file__).resolve().parents[3] / "SECURITY.md"
EVERYTHING: Final = "everything"


@pytest.fixture(scope="session")
def meeting(landlord: Landlord) -> Meeting:
    tenant = Tenant(landlord)
    try:
        found = meet(landlord, tenant)
    finally:
        tenant.let_go()
        # where these are not the job's own
        for folder in (*TEMPORARY, landlord.shared):
            (Path(folder) / OWN).unlink(missing_ok=True)
    return found


def kept_or_told(meeting: Meeting, surface: Surface) -> None:
    """Users are apart on the surface, as a try has shown, or it is told that they are
    not."""
    shared = meeting.separation.shared
    if surface not in shared:
        assert surface in meeting.tried, "nothing was there to reach"
        assert meeting.reached[surface] == []
        return
    text = meeting.separation.text
    assert f"{meeting.node}" in meeting.status
    assert _plain(text) in _plain(meeting.status)
    findings = [
        one for one in meeting.doctor["findings"] if meeting.node in one["where"]
    ]
    assert text in [one["text"] for one in findings]
    everything = set(shared) == set(Surface)
    assert (EVERYTHING if everything else ", ".join(shared)) in rows_of(meeting.engine)
    pytest.xfail(f"{meeting.engine}: {text}")


def _plain(text: str) -> str:
    """Without the ends of the terminal's lines."""
    return re.sub(r"\s+", "", text)


def rows_of(engine: str) -> set[str]:
    """What the page says is not kept apart on this engine: the last cell of its
    rows."""
    section = PAGE.read_text().partition("## By engine")[2].partition("\n## ")[0]
    rows = [
        line.strip("| ").split("|")
        for line in section.splitlines()
        if line.startswith("|")
    ]
    return {row[-1].strip() for row in rows if engine in row[0].casefold()}


def test_users_have_an_environment_of_their_own(meeting: Meeting) -> None:
    kept_or_told(meeting, Surface.ENVIRONMENT)


def test_users_have_arguments_of_their_own(meeting: Meeting) -> None:
    kept_or_told(meeting, Surface.ARGUMENTS)


def test_users_have_files_of_their_own(meeting: Meeting) -> None:
    kept_or_told(meeting, Surface.FILES)


def test_users_have_temporary_files_of_their_own(meeting: Meeting) -> None:
    kept_or_told(meeting, Surface.TEMPORARY_FILES)


def test_users_have_files_of_their_own_on_shared_paths(meeting: Meeting) -> None:
    kept_or_told(meeting, Surface.SHARED_PATHS)


def test_users_have_sockets_of_their_own(meeting: Meeting) -> None:
    kept_or_told(meeting, Surface.SOCKETS)


def test_users_have_gpus_of_their_own(meeting: Meeting) -> None:
    kept_or_told(meeting, Surface.GPUS)


def test_users_have_ports_of_their_own(meeting: Meeting) -> None:
    kept_or_told(meeting, Surface.PORTS)


def test_users_have_images_of_their_own(meeting: Meeting) -> None:
    kept_or_told(meeting, Surface.IMAGES)


def test_users_have_logs_of_their_own(meeting: Meeting) -> None:
    kept_or_told(meeting, Surface.LOGS)


def test_users_have_workdirs_of_their_own(meeting: Meeting) -> None:
    kept_or_told(meeting, Surface.SNAPSHOTS)


def test_users_have_caches_of_their_own(meeting: Meeting) -> None:
    kept_or_told(meeting, Surface.CACHES)


def test_a_user_reads_no_log_of_another_and_ends_no_job(tenant: Tenant) -> None:
    with client_of(tenant, SECOND) as second:
        held = tenant.runs(f"echo {CANARY}; {HOUR}")
        with pytest.raises(Forbidden):
            list(second.logs(held))
        with pytest.raises(Forbidden):
            second.cancel(held)
        tenant.stop(held)
