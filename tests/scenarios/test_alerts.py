"""A real head tells a real address of a job that failed and of a node that died,
once."""

import json

import pytest

from tests.boot.test_alerts import web
from tests.scenarios.house import house, until

pytestmark = pytest.mark.xdist_group("alerts")


def test_failures_and_dead_nodes_reach_who_asked_once_also_over_a_restart() -> None:
    with (
        web() as (address, got),
        house("--nodes", "2", "--gpus", "1", "--reboot", "600") as here,
    ):
        rules = "rules: {node_down: 1s, job_stuck: off}"
        text = f"to: [{{name: hook, webhook: '{address}'}}]\n{rules}\n"
        old = here.submit("old", "exit 1", retry={"user": 0})
        here.until_over(old)
        (here.root / "alerts.yaml").write_text(text)
        broken = f"to: [{{name: broken, webhook: 'http://127.0.0.1:9'}}, {text[5:]}"
        (here.root / "alerts.yaml").write_text(broken)
        tried = here.corral("alert", "test", "-y")
        sent = "test message sent to hook" in tried.stdout
        assert (tried.returncode, sent) == (1, True), tried
        assert "not delivered to broken: ConnectError" in tried.stdout
        assert len(got) == 1
        (here.root / "alerts.yaml").write_text("to: [{name: hook, webhok: 'http://x'}]")
        assert "webhok" in here.corral("alert", "test", "-y").stderr
        (here.root / "alerts.yaml").write_text(text)
        assert "hook" in here.ok("alert", "test", "-y")
        until(lambda: here.answer("alert", "ls")["receivers"], "the file is read")
        until(lambda: (here.root / "alerts.json").exists(), "the first look is over")
        job = here.submit("fails", "exit 3", retry={"user": 0})
        here.until_over(job)

        def told(what: str, field: str = "alerts") -> int:
            texts = [one["text"] for _, body in got for one in json.loads(body)[field]]
            return sum(what in text for text in texts)

        until(lambda: told("fails"), "the failure is told")
        here.kill_node("n2")
        until(lambda: told("node n2"), "the node is told")
        assert any(
            "node n2" in one["text"] for one in here.answer("alert", "ls")["alerts"]
        )
        until(
            lambda: "node n2" in (here.root / "alerts.json").read_text(),
            "it is remembered",
        )
        here.kill_head()
        here.up()
        until(lambda: here.nodes()["n2"] == "alive", "the node is back")
        again = here.submit("again", "exit 3", retry={"user": 0})
        here.until_over(again)
        until(lambda: told("again"), "the next failure is told")
        assert (told("fails"), told("node n2"), told("old")) == (1, 1, 0)
