"""Configuration of Prometheus: address of the head, token, and alert rules."""

from pathlib import Path
from typing import Final
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


def scrape_config(
    url: str, *, token_file: str, rules_file: str, ca_file: str | None = None
) -> str:
    """Return prometheus.yml, which scrapes the head at `url`.

    `honor_labels` is set so that the label `job` is the job in Corral, not the scrape
    job of Prometheus.
    """
    address = urlsplit(url)
    job: dict[str, object] = {
        "job_name": "corral",
        "scrape_interval": "10s",
        "honor_labels": True,
        "metrics_path": "/metrics",
        "scheme": address.scheme,
        "authorization": {"type": "Bearer", "credentials_file": token_file},
        "static_configs": [{"targets": [address.netloc]}],
    }
    if ca_file is not None:
        job["tls_config"] = {"ca_file": ca_file}
    return yaml.safe_dump(
        {
            "global": {"scrape_interval": "10s", "evaluation_interval": "15s"},
            "rule_files": [rules_file],
            "scrape_configs": [job],
        },
        sort_keys=False,
    )
