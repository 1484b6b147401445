"""`corral up --monitoring`: a real Prometheus reads the head, knows who holds each GPU,
and ends with the head."""

import json
import shutil
import urllib.error
import urllib.parse
import urllib.request
from base64 import b64encode
from collections.abc import Iterator
from typing import Any

import pytest

from corral.engines.local.processes import LocalProcess
from tests.scenarios.house import House, house, until

pytestmark = [
    pytest.mark.xdist_group("monitoring"),
    pytest.mark.skipif(
        shutil.which("prometheus") is None, reason="Prometheus is not installed"
    ),
]


@pytest.fixture(scope="module")
def here() -> Iterator[House]:
    with house("--gpus", "2", "--monitoring") as made:
        yield made


def read(here: House, path: str, password: str | None = None) -> Any:
    """Answer of Prometheus to its user. Raises: OSError."""
    folder = here.root / "monitoring"
    password = password or (folder / "password").read_text()
    known = b64encode(f"corral:{password}".encode()).decode()
    url = f"http://127.0.0.1:{(folder / 'port').read_text()}{path}"
    request = urllib.request.Request(url, headers={"Authorization": f"Basic {known}"})
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


def asked(here: House, query: str) -> list[dict[str, Any]]:
    """What Prometheus answers now; nothing while it starts."""
    try:
        found = read(here, f"/api/v1/query?{urllib.parse.urlencode({'query': query})}")
    except OSError:
        return []
    return list(found["data"]["result"])


def test_it_reads_the_head_and_knows_whose_gpus_are_busy_and_ends_with_the_head(
    here: House,
) -> None:
    job = here.submit("sleeps", "sleep 600", resources={"gpu": 1})
    here.until_state(job, "RUNNING")
    port = (here.root / "monitoring" / "port").read_text()
    assert f"Prometheus: http://127.0.0.1:{port}" in here.ok("up")
    until(lambda: bool(asked(here, 'up{job="corral"} == 1')), "the head is read")
    until(
        lambda: bool(asked(here, f'DCGM_FI_DEV_GPU_UTIL{{job="{job}"}}')),
        "the GPU has its job",
    )
    (row,) = asked(here, f'DCGM_FI_DEV_GPU_UTIL{{job="{job}"}}')
    assert row["metric"]["queue"] == "default"
    (free,) = asked(here, 'corral_gpus{kind="free"}')
    assert (free["metric"]["job"], float(free["value"][1])) == ("corral", 1.0)
    groups = read(here, "/api/v1/rules")["data"]["groups"]
    with pytest.raises(urllib.error.HTTPError, match="401"):
        read(here, "/api/v1/rules", password="a guess")
    assert sum(len(group["rules"]) for group in groups) == 29
    process = LocalProcess.recorded(here.root / "monitoring" / "prometheus.pid")
    assert process is not None
    here.ok("down", "-y", "--jobs", "stop")
    until(lambda: not process.lives, "Prometheus has ended")
