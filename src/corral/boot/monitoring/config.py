"""Configuration of Prometheus: address of the head, token, and alert rules."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import yaml

RULES: Final = Path(__file__).with_name("rules.yml")


def web_config(user: str, password: str) -> str:
    """Return web.yml, which protects the data of Prometheus with a user name and a
    password on a machine that others use too.

    Source: Prometheus, "HTTPS and authentication"; passwords are kept as bcrypt hashes.
    """
    import bcrypt  # of the extra `monitoring`

    hashed = bcrypt.hashpw(password.encode(), bcrypt.gensalt(rounds=10)).decode()
    return yaml.safe_dump({"basic_auth_users": {user: hashed}})


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayTargets:
    """Gateways that are scraped themselves, for their own counters; the head has the
    sums of all gateways.

    Args:
        urls: Their addresses; all have the same scheme.
        token_file: File of the token of a user with the role `caller`.
    """

    urls: Sequence[str]
    token_file: str


def scrape_config(
    url: str,
    *,
    token_file: str,
    rules_file: str,
    ca_file: str | None = None,
    gateways: GatewayTargets | None = None,
) -> str:
    """Return prometheus.yml, which scrapes the head at `url`.

    `honor_labels` is set so that the label `job` is the job in Corral, not the scrape
    job of Prometheus.
    """
    head = {**_scrape_job("corral", [url], token_file, ca_file), "honor_labels": True}
    jobs = [head]
    if gateways is not None:
        jobs.append(
            _scrape_job("corral-gateway", gateways.urls, gateways.token_file, ca_file)
        )
    return yaml.safe_dump(
        {
            "global": {"scrape_interval": "10s", "evaluation_interval": "15s"},
            "rule_files": [rules_file],
            "scrape_configs": jobs,
        },
        sort_keys=False,
    )


def _scrape_job(
    name: str, urls: Sequence[str], token_file: str, ca_file: str | None
) -> dict[str, Any]:
    addresses = [urlsplit(url) for url in urls]
    job: dict[str, Any] = {
        "job_name": name,
        "scrape_interval": "10s",
        "metrics_path": "/metrics",
        "scheme": addresses[0].scheme,
        "authorization": {"type": "Bearer", "credentials_file": token_file},
        "static_configs": [{"targets": [address.netloc for address in addresses]}],
    }
    if addresses[0].scheme == "https" and ca_file is not None:
        job["tls_config"] = {"ca_file": ca_file}
    return job
