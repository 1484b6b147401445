"""A job in an image: its files, the job's own folders, and the same ends."""

from collections.abc import Iterator

import pytest

from tests.contracts.engines.landlord import HOUR, Tenant
from tests.podman import CONTENT, small_image


@pytest.fixture(scope="session")
def image() -> Iterator[str]:
    with small_image() as name:
        yield name


def test_an_image_is_what_the_ranks_run_in(tenant: Tenant, image: str) -> None:
    said = tenant.says(
        "cat /etc/corral-image; echo $FROM_IMAGE; ls /home 2>&1 || true", image=image
    )
    assert said.splitlines()[:2] == [CONTENT, "set-by-the-image"]
    assert "No such file" in said.splitlines()[2]


def test_what_setup_changes_in_an_image_its_ranks_see_and_nobody_else(
    tenant: Tenant, image: str
) -> None:
    assert (
        tenant.says("cat /made", image=image, setup="echo mine > /made").strip()
        == "mine"
    )
    assert tenant.ends("cat /made", image=image).exit_code == 1


def test_the_shared_folder_and_the_workdir_are_seen_in_an_image(
    tenant: Tenant, image: str
) -> None:
    kept = tenant.shared / "from-an-image"
    said = tenant.says(f"echo $RANK > {kept}; echo here > x; cat x", image=image)
    assert (said.strip(), kept.read_text().strip()) == ("here", "0")


def test_a_job_in_an_image_is_cancelled_whole(tenant: Tenant, image: str) -> None:
    id = tenant.runs(f"sleep 3600 & {HOUR}", image=image)
    assert tenant.stop(id).state == "CANCELLED"
    assert tenant.landlord.processes(id, 1) == []


def test_an_image_that_cannot_be_had_is_told_and_tried_no_more(tenant: Tenant) -> None:
    job = tenant.ends("true", image="oci-archive:/no/such/archive.tar")
    assert job.state == "FAILED"
    told = f"{job.reason} {[receipt.evidence for receipt in job.receipts]}"
    assert "oci-archive:/no/such/archive.tar" in told
