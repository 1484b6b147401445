"""Check of the object stores to which submitted jobs save, where the head can see
them."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

from corral.api.app_state import House
from corral.domain.errors import SpecInvalid
from corral.domain.job import JobSpec
from corral.domain.store_url import StoreUrl, is_store_url, parse_store_url
from corral.store.object_client import STORE_VARIABLES, has_credentials

CHECK_SECONDS: Final = 10.0
MOST_STORES: Final = 4  # of one submission
PROGRAM: Final = "corral.store.probe_program"
# name files or services of the machine that reads them: the head does not for a job
_OF_THE_MACHINE: Final = frozenset(
    {
        "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
        "AWS_ROLE_ARN",
        "AWS_WEB_IDENTITY_TOKEN_FILE",
        "GOOGLE_APPLICATION_CREDENTIALS",
        "GOOGLE_SERVICE_ACCOUNT",
    }
)
_ENDPOINTS: Final = tuple(name for name in STORE_VARIABLES if "ENDPOINT" in name)
_METADATA_HOSTS: Final = ("169.254.", "[fe80:", "metadata.", "100.100.100.200")


async def check_stores(house: House, specs: Sequence[JobSpec]) -> None:
    """Check that jobs can save to the object stores of their checkpoint paths. The
    credentials of a job are used if it has any, else those of the head. A store that
    the head cannot reach is not refused: a node may reach it.

    Raises: SpecInvalid.
    """
    stores: dict[tuple[str, tuple[tuple[str, str], ...]], JobSpec] = {}
    for spec in specs:
        if spec.checkpoint is not None and is_store_url(spec.checkpoint.path):
            variables = tuple(sorted((await _variables(house, spec)).items()))
            stores.setdefault((spec.checkpoint.path, variables), spec)
    for path, variables in list(stores)[:MOST_STORES]:
        env = dict(variables)
        await asyncio.to_thread(_check, parse_store_url(path), env)


def _check(url: StoreUrl, job_env: Mapping[str, str]) -> None:
    """Raises: SpecInvalid."""
    is_jobs = bool(job_env)
    head_env = {
        name: os.environ[name] for name in STORE_VARIABLES if name in os.environ
    }
    env = job_env if is_jobs else head_env
    if not has_credentials(url, env) or not _may_connect(env):
        return
    refused = _probe(url, env)
    # of the head's own credentials, the nodes may have better ones
    if refused and (is_jobs or refused["no_bucket"]):
        raise SpecInvalid(
            f"checkpoint.path: {url}: {refused['message']}", hint=refused["hint"]
        )


def _probe(url: StoreUrl, env: Mapping[str, str]) -> Mapping[str, Any]:
    """Return why the store refuses these credentials; nothing if it does not, or if it
    does not answer. The program sees no variable of the head."""
    try:
        done = subprocess.run(
            [sys.executable, "-m", PROGRAM],
            input=json.dumps({"url": str(url), "env": dict(env)}),
            env={"PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
            timeout=CHECK_SECONDS,
        )
        refused: Mapping[str, Any] = json.loads(done.stdout).get("refused", {})
    except (OSError, subprocess.SubprocessError, ValueError):
        return {}
    return refused


async def _variables(house: House, spec: JobSpec) -> dict[str, str]:
    """Return the job's own variables about object stores, its secrets among them."""
    values = {name: value for name, value in spec.env if name in STORE_VARIABLES}
    for name in spec.secrets:
        if name in STORE_VARIABLES:
            sealed = await house.control.store.secret(name)
            if sealed is not None:
                values[name] = house.settings.seals.open(name, sealed).decode()
    return {
        name: value for name, value in values.items() if name not in _OF_THE_MACHINE
    }


def _may_connect(env: Mapping[str, str]) -> bool:
    """Return whether the endpoint is not the service that gives this machine its own
    credentials."""
    hosts = [urlsplit(env[name]).netloc.lower() for name in _ENDPOINTS if env.get(name)]
    return not any(host.startswith(_METADATA_HOSTS) for host in hosts)
