"""Ranks as the accounts of their users, where the agents are root's."""

import os
from functools import partial

import pytest

import corral
from tests.scenarios.house import House, house, until

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0, reason="only root may become another"
)


def token_of(here: House, user: str) -> str:
    here.ok("user", "add", user, "--role", "user", "-y")
    return str(
        here.ok("token", "create", "--user", user, "-y").strip().splitlines()[-1]
    )


def submit_as(here: House, token: str, name: str, run: str) -> str:
    """The id of a job of a user, in a work folder of its own."""
    project = here.root.parent / f"of-{name}"
    project.mkdir()
    (project / "train.py").write_text("trained\n")
    with here.client() as admin:
        url = admin.status().head.url
    with corral.Client(url=url, token=token) as client:
        return client.submit({"name": name, "run": run, "workdir": str(project)})[0].id


# Accounts that every machine has stand in for users; by default no rank runs as a
# service.
ANY_ACCOUNT = ("--policy", "min_uid=1", "--policy", "deny=root")


def test_a_rank_gets_to_its_own_work_folder_by_its_name_and_to_no_other() -> None:
    with house("--nodes", "1", "--gpus", "0", *ANY_ACCOUNT) as here:
        here.root.parent.chmod(0o755)  # as /var/lib is: whoever it is passes
        nobody, games = token_of(here, "nobody"), token_of(here, "games")
        gate = here.shared / "gate"
        reads = f"cat $PWD/train.py; while [ ! -e {gate} ]; do sleep 0.2; done"
        held = submit_as(here, games, "reads", reads)
        here.until_state(held, "RUNNING")
        theirs = f"{here.root}/nodes/n1/attempts/{held}.1"
        looks = "; ".join(
            f"cat {theirs}/{file} && exit 9"
            for file in ("work/train.py", "logs/rank-0.log")
        )
        over = here.until_over(
            submit_as(here, nobody, "looks", f"id -un; {looks}; exit 0")
        )
        gate.touch()
        here.until_over(held)
        assert here.logs(held) == "trained\n"
        assert (over.state, over.exit_code) == ("DONE", 0)
        assert here.logs(over.id).startswith("nobody\n")
        assert here.logs(over.id).count("No such file or directory") == 2


def test_whose_ranks_cannot_get_to_the_cluster_is_said_with_the_way_out() -> None:
    """As below root's home; whoever is alone there, as root, hears of nothing."""
    with house("--nodes", "1", "--gpus", "0") as here:
        wall = here.root.parent
        wall.chmod(0o700)
        said = f"cannot reach their files in {here.root}: {wall} is closed to other accounts"
        assert said not in here.corral("up").stderr
        added = here.corral("user", "add", "games")
        again = here.corral("up")
        shown = here.corral("status")
        for one in (added, again, shown):
            assert f"ranks of games {said}; run: chmod o+x {wall}" in one.stderr
        wall.chmod(0o711)
        assert all(said not in here.corral(word).stderr for word in ("up", "status"))


def is_refused(client: corral.Client, job: str) -> bool:
    return client.why(job).code == "NoAccount"


def is_known(client: corral.Client, user: str) -> bool:
    return user in client.node("n1").refused_users


def test_a_user_without_an_account_waits_and_is_shown_why() -> None:
    """The same holds for a user who is called like a service of the machine."""
    with house("--nodes", "1", "--gpus", "0") as here, here.client() as admin:
        here.root.parent.chmod(0o755)
        for user, said in (
            ("zoe", "has no account zoe"),
            ("games", "below the lowest"),
        ):
            token = token_of(here, user)
            until(partial(is_known, admin, user), f"n1 refuses {user}")
            job = submit_as(here, token, f"of-{user}", "id -un")
            until(partial(is_refused, admin, job), f"{job} waits for an account")
            assert said in "".join(admin.why(job).suggestions)
            assert admin.why(job).forecast is None
            assert admin.job(job).attempt == 0
        own = here.until_over(here.submit("own", "id -un"))
        assert here.logs(own.id) == "root\n"
