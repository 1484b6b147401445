"""What is secret stays so."""

import os
from pathlib import Path

from tests.contracts.engines.landlord import HOUR, Tenant


def words_of_all() -> str:
    """The arguments of every process of this machine."""
    found = []
    for name in filter(str.isdecimal, os.listdir("/proc")):
        try:
            found.append(
                Path(f"/proc/{name}/cmdline").read_bytes().decode(errors="replace")
            )
        except OSError:
            continue
    return "\n".join(found)


def test_a_secret_reaches_the_ranks_and_no_argument_or_answer(tenant: Tenant) -> None:
    canary = "canary-4711-of-the-contract"
    with tenant.house.client() as client:
        client.set_secret("CONTRACT_CANARY", canary)
    try:
        run = f"echo ${{#CONTRACT_CANARY}}; {HOUR}"
        id = tenant.runs(run, secrets=["CONTRACT_CANARY"])
        with tenant.house.client() as client:
            said = next(iter(client.logs(id, follow=True))).data
        assert said.split()[0] == str(len(canary))
        assert canary not in words_of_all()
        assert canary not in tenant.house.ok("show", id, "--json")
        tenant.stop(id)
    finally:
        tenant.house.ok("secret", "rm", "CONTRACT_CANARY", "-y")


def test_a_secret_that_is_not_set_is_refused(tenant: Tenant) -> None:
    done = tenant.house.corral(
        "run", "--secret", "NOBODY_SET_IT", "-d", "-y", "--", "true"
    )
    assert (done.returncode, "NOBODY_SET_IT" in done.stderr) == (3, True), done


def test_no_token_is_in_an_argument_or_in_a_ranks_environment(tenant: Tenant) -> None:
    """An agent's, a part's or the admin's."""
    id = tenant.runs(f"env; {HOUR}")
    files = [path for path in tenant.house.root.rglob("token") if path.is_file()]
    tokens = [path.read_text().strip() for path in files]
    assert tokens
    with tenant.house.client() as client:
        said = next(iter(client.logs(id, follow=True))).data
    everything = words_of_all() + said
    assert [token for token in tokens if token and token in everything] == []


def test_the_path_of_the_admins_token_leads_a_rank_to_no_token(tenant: Tenant) -> None:
    """Ranks of the head's own account, where that is root, reach it by other ways
    (/proc): nothing keeps root from root. docs/guides/node-policy.md says whose ranks
    run as root."""
    token = tenant.house.place.token
    secret = token.read_text().strip()
    job = tenant.ends(f"cat {token} 2>/dev/null; true")
    assert secret not in tenant.house.logs(job.id)
