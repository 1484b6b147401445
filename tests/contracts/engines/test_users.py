"""Users are apart where they share a node."""

import os
from collections.abc import Sequence

import pytest

import corral
from corral.domain.errors import Forbidden
from tests.contracts.engines.landlord import HOUR, Tenant

CANARY = "canary-of-the-first-user"
FIRST, SECOND = "zoe-contract", "yan-contract"  # no machine has such accounts
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root starts ranks as other accounts")


def client_of(tenant: Tenant, user: str) -> corral.Client:
    """Of this user, who is added where there is none yet."""
    house = tenant.house
    with house.client() as admin:
        if user not in {one.name for one in admin.users()}:
            admin.add_user(user, role="user")
        url = admin.status().head.url
    made = house.ok("token", "create", "--user", user, "-y").strip().splitlines()[-1]
    return corral.Client(url=url, token=made)


def submit(tenant: Tenant, client: corral.Client, run: str, secrets: Sequence[str] = ()) -> str:
    """The id of a job on the first node."""
    spec = {
        "name": "users",
        "run": run,
        "resources": {"cpu": 0.5, "memory": "64MB"},
        "grace": "2s",
        "constraints": {"node": tenant.landlord.nodes[0]},
        "secrets": list(secrets),
    }
    return tenant.keep(client.submit(spec)[0].id)


@as_root
def test_a_user_reaches_nothing_of_another_users_ranks(tenant: Tenant) -> None:
    """Environment, arguments, files, temporary files, shared memory, home, sockets, logs."""
    with client_of(tenant, FIRST) as first, client_of(tenant, SECOND) as second:
        writes = "; ".join(
            f"echo {CANARY} > {place}/own; chmod 666 {place}/own"
            for place in ("/tmp", "/var/tmp", "/dev/shm", "$HOME", ".")
        )
        held = submit(
            tenant,
            first,
            f"{writes}; export OWN={CANARY}; pwd; echo $HOME; sh -c '{HOUR}' {CANARY}",
        )
        tenant.until_running(held)
        with tenant.house.client() as admin:
            shown = next(iter(admin.logs(held, follow=True))).data
        work, home = shown.split()[:2]
        looks = "; ".join(
            (
                "cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline | tr '\\0' '\\n'",
                f"cat /tmp/own /var/tmp/own /dev/shm/own {home}/own {work}/own",
                f"cat {work}/../logs/* {work}/../launch.json {work}/../tmp/tmp/own",
                f"ls {home} {work}/../work",
                f"test -w {work}/../shim.sock && echo rea''ched",
                "kill -9 -1 2>/dev/null",
            )
        )
        over = tenant.house.until_over(submit(tenant, second, f"{looks}; echo looked"))
        said = tenant.house.logs(over.id)
        assert "looked" in said
        assert "reached" not in said
        assert CANARY not in said
        assert tenant.house.job(held).state == "RUNNING"
        tenant.stop(held)


def test_a_user_reads_no_log_of_another_and_ends_no_job(tenant: Tenant) -> None:
    with client_of(tenant, SECOND) as second:
        held = tenant.runs(f"echo {CANARY}; {HOUR}")
        with pytest.raises(Forbidden):
            list(second.logs(held))
        with pytest.raises(Forbidden):
            second.cancel(held)
        tenant.stop(held)
