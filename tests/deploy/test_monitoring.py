"""What Prometheus and Grafana are given: every query can be read, and asks for what
there is."""

import json
import re
import runpy
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as families,
)

from corral.api.metrics.device_series import GPUS, NODES, XIDS
from corral.boot.monitoring import scrape_config
from corral.boot.monitoring.config import RULES
from tests.api.heads import Head, serving

DEPLOY = Path(__file__).parents[2] / "deploy"
BOARDS = runpy.run_path(str(DEPLOY / "grafana" / "dashboards.py"))


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[set[str]]:
    """The names of all series that a head can answer with."""
    with serving(tmp_path_factory.mktemp("head")) as head:
        yield names_of(head)


def names_of(head: Head) -> set[str]:
    with head.http("vera") as http:
        text = http.get(
            "/metrics", headers={"Accept": "application/openmetrics-text"}
        ).text
    found = {one.name for one in (*GPUS, *NODES)} | {"up", XIDS}
    for family in families(text):  # type: ignore[no-untyped-call]
        more = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count")}
        found |= {family.name + end for end in more.get(family.type, ("",))}
    return found


def queries() -> Iterator[str]:
    for dashboard in BOARDS["DASHBOARDS"]:
        for panel in dashboard.panels:
            yield from panel.queries.values()
    for group in yaml.safe_load(RULES.read_text())["groups"]:
        yield from (rule["expr"] for rule in group["rules"])


def selected(query: str) -> set[str]:
    """The names of the series that a query asks for. Raises: ValueError when it is
    none."""
    promql_parser.parse(query)
    words = re.sub(r"\{[^}]*\}|\[[^]]*\]|\b(by|ignoring|on) \([^)]*\)", "", query)
    return set(re.findall(r"\b(?:corral_|vllm:|DCGM_|up\b)\w*", words))


@pytest.mark.parametrize("query", sorted(set(queries())))
def test_every_query_can_be_read_and_asks_for_what_there_is(
    query: str, told: set[str]
) -> None:
    asked = selected(query.replace("$job", "j1").replace("$service", "chat"))
    assert asked
    assert asked <= told


def test_a_query_for_what_there_is_not_would_be_found(told: set[str]) -> None:
    assert not selected("sum(corral_jobz)") <= told
    with pytest.raises(ValueError, match="unclosed left parenthesis"):
        selected("sum by (")


def test_panels_do_not_overlap_and_stay_on_the_page() -> None:
    for dashboard in BOARDS["DASHBOARDS"]:
        board: dict[str, Any] = json.loads(BOARDS["written"](dashboard))
        taken: set[tuple[int, int]] = set()
        for panel in board["panels"]:
            at = panel["gridPos"]
            cells = {
                (x, y)
                for x in range(at["x"], at["x"] + at["w"])
                for y in range(at["y"], at["y"] + at["h"])
            }
            assert not taken & cells
            assert at["x"] + at["w"] <= 24
            taken |= cells


@pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool is not installed"
)
def test_promtool_takes_the_rules_and_the_settings(tmp_path: Path) -> None:
    for name in ("token", "ca.pem"):
        (tmp_path / name).write_text("x")
    settings = tmp_path / "prometheus.yml"
    text = scrape_config(
        "https://head:8443",
        token_file=str(tmp_path / "token"),
        rules_file=str(RULES),
        ca_file=str(tmp_path / "ca.pem"),
    )
    settings.write_text(text)
    checked = subprocess.run(
        ["promtool", "check", "config", str(settings)], capture_output=True, text=True
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert "29 rules found" in checked.stdout
