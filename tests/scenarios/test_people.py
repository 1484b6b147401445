"""People on a real head: a user with a token, what another may not do to their job, and
the end."""

import json
import sqlite3

import pytest

import corral
from corral.domain.errors import Forbidden, TokenRevoked
from tests.scenarios.house import House, house, until


def client(made: House, token: str) -> "corral.Client":
    url = json.loads(made.place.head_json.read_text())["url"]
    return corral.Client(url=url, token=token)


def test_a_user_submits_another_cannot_stop_it_and_a_revoked_token_is_refused() -> None:
    # nobody here has an account of their name
    apart = ("--policy", "uid_range=200000-265535")
    with house("--nodes", "1", "--gpus", "1", *apart) as made:
        for name in ("ann", "bob"):
            assert made.answer("user", "add", name)["role"] == "user"
        ann, bob = (
            made.answer("token", "create", "--user", name) for name in ("ann", "bob")
        )
        viewer = made.answer("token", "create", "--role", "viewer", "--expires", "30d")
        assert viewer["role"] == "viewer"
        with client(made, ann["token"]) as hers, client(made, bob["token"]) as his:
            job = hers.submit({"name": "long", "run": "echo key-of-ann; sleep 600"})[0]
            assert job.owner == "ann"
            made.until_state(job.id, "RUNNING")
            with pytest.raises(Forbidden, match="ann"):
                his.cancel(job.id)
            with pytest.raises(Forbidden):
                list(his.logs(job.id))
            assert his.job(job.id).run is None
            assert [one.id for one in his.jobs()] == [job.id]
            with client(made, viewer["token"]) as eyes, pytest.raises(Forbidden):
                eyes.cancel(job.id)

            following = hers.events(follow=True)
            next(following)
            made.ok("token", "revoke", ann["id"], "-y")
            with pytest.raises(TokenRevoked, match="revoked"):
                hers.jobs()
            # what was open has ended, and is not opened again
            with pytest.raises(TokenRevoked):
                list(following)
            assert made.job(job.id).state == "RUNNING"
        refused = made.corral("user", "rm", "ann", "-y")
        assert refused.returncode == 3
        assert "unfinished" in refused.stderr
        made.ok("stop", job.id, "-y")
        made.until_over(job.id)
        made.ok("user", "rm", "ann", "-y")
        said = made.answer("audit", "--since", "1d")["entries"]
        mine = [
            (one["by"], one["what"], one["accepted"])
            for one in said
            if one["on"] == job.id
        ]
        assert mine[0] == ("ann", "job.submit", True)
        assert ("bob", "job.cancel", False) in mine
        assert mine[-1][1:] == ("job.cancel", True)
        assert ann["token"] not in json.dumps(said)
        lines = made.ok("audit", "--export", "-", "--what", "job.").splitlines()
        exported = [one for one in map(json.loads, lines) if one["on"] == job.id]
        assert exported[0]["what"] == "job.submit"
        verified = made.answer("audit", "--verify")
        assert verified["whole"], verified["fault"]
        assert made.answer("audit", "--verify", "--anchor", verified["anchor"])["whole"]
        wrong = verified["anchor"].partition(":")[0] + ":" + "0" * 64
        assert made.corral("audit", "--verify", "--anchor", wrong).returncode == 1


def test_who_is_let_in_and_who_was_revoked_outlives_the_head() -> None:
    with house("--nodes", "1") as made:
        made.ok("user", "add", "ann")
        token = made.answer("token", "create", "--user", "ann")
        kept = made.answer("token", "create", "--user", "ann")
        made.ok("token", "revoke", token["id"], "-y")
        before = made.answer("token", "ls")["tokens"]
        assert {"n1", "ann"} < {one["user"] for one in before}
        made.kill_head()
        made.up()
        after = made.answer("token", "ls")["tokens"]
        assert {one["id"]: one["state"] for one in before} == {
            one["id"]: one["state"] for one in after
        }
        with client(made, token["token"]) as hers, pytest.raises(TokenRevoked):
            hers.status()
        with client(made, kept["token"]) as hers:
            until(
                lambda: hers.nodes()[0].liveness == "alive", "its agent is let in again"
            )
        with sqlite3.connect(made.place.database) as raw:
            with pytest.raises(sqlite3.IntegrityError, match="append-only"):
                raw.execute("DELETE FROM audit")
            text = "".join(str(row) for row in raw.iterdump())
        raw.close()
        assert token["token"] not in text
