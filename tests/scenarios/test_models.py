"""Models on the nodes of a cluster of real processes: a small server of Hugging Face's
API counts what comes from outside."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from corral.wire.model_answers import ModelOnNode
from tests.agent.content_cache.hf_server import HfServer, hf_server, model_files
from tests.scenarios.house import House, house, until

LIST = "cd $CORRAL_MODEL && find . -type f | sort | xargs sha256sum"


@pytest.fixture
def hf() -> Iterator[HfServer]:
    with hf_server(model_files()) as server:
        yield server


@contextmanager
def cluster(*options: str) -> Iterator[House]:
    with house("--nodes", "2", "--gpus", "2", *options) as here:
        try:
            yield here
        finally:
            here.ok("down", "-y")


def submit(here: House, hf: HfServer, name: str, run: str, node: str) -> str:
    return here.submit(
        name,
        run,
        model=hf.source,
        env={"HF_ENDPOINT": hf.url},
        constraints={"node": node},
    )


def on_nodes(here: House) -> dict[str, ModelOnNode]:
    with here.client() as client:
        return {
            node.node: node for model in client.models().models for node in model.nodes
        }


def test_each_byte_comes_from_outside_once_for_all_nodes_and_replicas(
    hf: HfServer, tmp_path: Path
) -> None:
    with cluster() as here:
        first = [submit(here, hf, f"a{number}", LIST, "n1") for number in (1, 2)]
        texts = {here.logs(job) for job in first if here.until_over(job)}
        assert len(texts) == 1
        assert texts.pop().count("\n") == len(hf.files)
        second = submit(here, hf, "b", LIST, "n2")
        assert here.until_over(second).state == "DONE"
        assert here.logs(second) == here.logs(first[0])
        assert hf.sent == {path: len(content) for path, content in hf.files.items()}
        until(lambda: len(on_nodes(here)) == 2, "both nodes report the model")


def test_a_killed_agent_goes_on_where_the_last_one_ended(
    hf: HfServer, tmp_path: Path
) -> None:
    """The large file stops in its middle; its second half comes by a range."""
    large = "model-1.safetensors"
    hf.held.add(large)
    with cluster() as here:
        job = submit(here, hf, "a", LIST, "n1")
        until(lambda: hf.sent[large] == 750_000, "half of the file was sent")
        partial = here.root / "nodes" / "n1" / "content" / "partial"
        until(
            lambda: any(file.stat().st_size == 750_000 for file in partial.iterdir()),
            "half of it is on the disk",
        )
        until(lambda: "fetches model" in here.ok("why", job), "why tells it")
        assert f"n1 fetches model {hf.source}: " in here.ok("why", job)
        assert " of 2.7 MB" in here.ok("why", job)
        agent = here.agent("n1")
        os.kill(agent.pid, signal.SIGKILL)
        hf.held.clear()
        hf.go_on.set()
        until(lambda: not agent.lives, "the agent is gone")
        assert here.until_over(job).state == "DONE"
        assert here.job(job).attempt == 1
    assert [name for name, _ in hf.ranges] == [large]
    assert hf.sent[large] <= 1_500_000 + 750_000  # what the dead agent never took
    assert hf.sent["model-2.safetensors"] == 1_200_000


def test_nodes_that_begin_together_do_not_fetch_the_large_files_twice(
    hf: HfServer, tmp_path: Path
) -> None:
    large = {"model-1.safetensors", "model-2.safetensors"}
    hf.held |= large
    with cluster() as here:
        first = submit(here, hf, "a", LIST, "n1")
        until(lambda: any(hf.sent[name] for name in large), "n1 has begun")
        second = submit(here, hf, "b", LIST, "n2")
        until(
            lambda: f"n2 fetches model {hf.source}: 0.0 of" in here.ok("why", second),
            "n2 waits",
        )
        hf.go_on.set()
        assert {here.until_over(job).state for job in (first, second)} == {"DONE"}
    assert {name: hf.sent[name] for name in large} == {
        name: len(hf.files[name]) for name in large
    }


def test_a_model_that_is_not_what_the_spec_pins_is_refused_by_name(
    hf: HfServer,
) -> None:
    pinned = f"hf://org/name@{'e' * 40}"
    with cluster() as here:
        job = here.submit("a", "true", model=pinned, env={"HF_ENDPOINT": hf.url})
        assert here.until_over(job).state == "FAILED"
        text = here.ok("why", job)
        assert pinned in " ".join(text.split())
        assert "not the pinned one" in " ".join(text.split())


SERVER = """\
import http.server, os, pathlib

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = pathlib.Path(os.environ["CORRAL_MODEL"], "config.json").read_bytes()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

port = int(os.environ["CORRAL_PORT"])
http.server.ThreadingHTTPServer(("", port), Handler).serve_forever()
"""


def test_a_service_starts_from_a_fetched_model_and_commands_manage_it(
    hf: HfServer, tmp_path: Path
) -> None:
    server = tmp_path / "server.py"
    server.write_text(SERVER)
    with cluster() as here:
        env = ("--env", f"HF_ENDPOINT={hf.url}")
        assert "model rm" not in here.ok("model", "ls")
        told = here.ok("model", "pull", hf.source, "--all", "--pin", *env)
        assert told == f"{hf.source} is on n1, n2\n"
        document = {
            "kind": "service",
            "name": "chat",
            "model": hf.source,
            "run": f"python {server}",
            "replicas": 2,
            "constraints": {"node": "n2"},
            "env": {"HF_ENDPOINT": hf.url},
        }
        with here.client() as client:
            client.apply_services(document)
            until(lambda: client.service("chat").ready == 2, "it is ready")
            assert client.service("chat").models == ["chat", "org/name"]
        assert on_nodes(here)["n2"].pinned
        until(lambda: on_nodes(here)["n2"].used, "it is reported as used")
        refused = here.corral("model", "rm", hf.source, "--node", "n2", "-y")
        assert refused.returncode != 0
        assert "is in use on n2" in refused.stderr
        here.ok("service", "stop", "chat", "-y")
        until(lambda: not here.answer("service", "ls")["services"], "it has ended")
        until(lambda: not on_nodes(here)["n2"].used, "nothing uses the model")
        line = here.ok("model", "ls").splitlines()[1]
        assert line.split()[:5] == ["hf://org/name", "c0ffee000000", "2.7", "MB", "yes"]
        here.ok("model", "rm", hf.source, "-y")
        assert on_nodes(here) == {}
        assert hf.sent["model-1.safetensors"] == 1_500_000
        failed = here.corral("model", "pull", "hf://org/none", *env, "--all")
        assert failed.returncode == 1
        assert failed.stderr.count("does not have hf://org/none@main") == 2
