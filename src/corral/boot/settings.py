"""Directory of a cluster and its settings."""

import json
import os
import re
import secrets
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace
from ipaddress import ip_address
from pathlib import Path
from socket import gethostname
from typing import Any, Final
from urllib.parse import urlsplit

from corral.boot.declared_settings import ENGINES, LOCAL, SETTINGS, DeclaredSettings
from corral.boot.limit_settings import (
    MOST_PORT,
    check_gateway,
    check_limits,
    model_cache_bytes,
    work_limits,
)
from corral.domain.errors import Conflict, Refusal, SpecInvalid
from corral.domain.node_policy import NodePolicy, policy_with
from corral.domain.quota import ClusterLimits
from corral.domain.retention import Retention
from corral.domain.units import DAY_SECONDS
from corral.domain.users import NODE_TOKEN_SECONDS
from corral.engines.local.labels import labels_of_nodes
from corral.health.health_rules import HealthRules

DEFAULT_DIR: Final = "~/.corral"
MOST_NODES: Final = 256  # processes of one machine, each node having at least two
SYSLOG_PORT: Final = 514
HEAD_NAME: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,29}", re.ASCII)
NOT_IN_NAMES: Final = re.compile(r"[^a-z0-9]+", re.ASCII)
MOST_GPUS: Final = 64
MOST_SLICES: Final = 64
MOST_DAYS: Final = 36_500
MOST_TOKEN_DAYS: Final = 3_650
MODES: Final = ("observe", "enforce")


class UnsafeBind(Refusal):
    """The head cannot serve encrypted: a certificate or its key is missing."""

    code = "unsafe_bind"


@dataclass(frozen=True, slots=True)
class ClusterDir:
    """The directory of one cluster; `docs/architecture/overview.md` lists its files."""

    root: Path

    @classmethod
    def chosen(cls, asked: Path | None = None) -> "ClusterDir":
        """Return the directory of --dir, else of CORRAL_DIR, else ~/.corral; the path
        is always absolute."""
        root = asked or Path(os.environ.get("CORRAL_DIR") or DEFAULT_DIR)
        return cls(root.expanduser().absolute())

    @property
    def head_json(self) -> Path:
        return self.root / "head.json"

    @property
    def head_lock(self) -> Path:
        return self.root / "head.lock"

    @property
    def head_log(self) -> Path:
        return self.root / "head.log"

    @property
    def cluster_json(self) -> Path:
        return self.root / "cluster.json"

    @property
    def database(self) -> Path:
        return self.root / "corral.db"

    @property
    def series(self) -> Path:
        return self.root / "series.db"

    @property
    def monitoring(self) -> Path:
        return self.root / "monitoring"

    @property
    def token(self) -> Path:
        return self.root / "token"

    @property
    def key(self) -> Path:
        return self.root / "key"

    @property
    def nodes(self) -> Path:
        return self.root / "nodes"

    @property
    def tls(self) -> Path:
        """Return the folder of the keys and the certificate of a head that serves other
        machines."""
        return self.root / "tls"

    @property
    def trusted(self) -> Path:
        """Return the certificate file that verifies the head, on this machine and on
        machines that have joined."""
        return self.root / "ca.pem"

    @property
    def joined(self) -> Path:
        """Return the file that names the cluster that this machine has joined."""
        return self.root / "joined.json"

    @property
    def replays(self) -> Path:
        return self.root / "replays"

    def create(self) -> None:
        """Make the directory, readable by its owner alone."""
        try:
            self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.root.chmod(0o700)
        except OSError as error:
            raise Conflict(
                f"the cluster's directory {self.root} cannot be used: {error.strerror}",
                hint="choose another directory with --dir or CORRAL_DIR",
            ) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSettings(DeclaredSettings):
    """Settings of a cluster, checked to be valid together.

    Raises: SpecInvalid, UnsafeBind.
    """

    def __post_init__(self) -> None:
        if self.engine not in ENGINES:
            raise SpecInvalid(
                f"there is no engine {self.engine}; the engines are "
                f"{', '.join(ENGINES)}",
                hint="to start nodes on this machine, run: corral up --engine local",
            )
        self._check_size()
        labels_of_nodes(self.nodes, self.labels, self.topology)
        policy_with(NodePolicy(), self.policy)
        if not 0 <= self.reboot_seconds <= DAY_SECONDS:
            raise SpecInvalid(
                f"--reboot {self.reboot_seconds:g} is not valid: the time until a dead "
                f"node is started again is 0 to {DAY_SECONDS:,.0f} seconds",
                hint="for example: corral up --reboot 30",
            )
        self._check_retention()
        ClusterLimits.of(self.quotas, self.disk_reserve)  # raises on invalid values
        work_limits(self.keep_work_days, self.keep_work_size)
        model_cache_bytes(self.model_cache)
        self._check_health()
        self._check_head()
        self._check_address()

    def _check_retention(self) -> None:
        """Check how long ended jobs are kept. Raises: SpecInvalid."""
        if not 0 < self.keep_days <= MOST_DAYS:
            raise SpecInvalid(
                f"--keep-days {self.keep_days:g} is not valid: use more than 0 and at "
                f"most {MOST_DAYS:,} days",
                hint="for example: corral up --keep-days 30",
            )
        if self.keep_jobs < 1:
            raise SpecInvalid(
                f"--keep-jobs {self.keep_jobs} is not valid: use 1 or more jobs",
                hint="for example: corral up --keep-jobs 50000",
            )

    def _check_address(self) -> None:
        """Check the address and the certificate of the head. Raises: UnsafeBind."""
        if not self.host:
            raise UnsafeBind(
                "--host is empty, so the head has no address to serve on",
                hint="for example: corral up --host 127.0.0.1",
            )
        if bool(self.tls_certificate) != bool(self.tls_key):
            option, missing = "--tls-certificate", "--tls-key"
            if self.tls_key:
                option, missing = missing, option
            raise UnsafeBind(
                f"the head cannot serve on {self.host}: {option} is set without "
                f"{missing}",
                hint="give both --tls-certificate and --tls-key, or neither; without "
                "them, Corral creates a certificate",
            )

    def _check_size(self) -> None:
        """Check the numbers of nodes, GPUs and slices. Raises: SpecInvalid."""
        # others may join a head on another address
        fewest = 1 if is_loopback(self.host) else 0
        if (
            not fewest <= self.nodes <= MOST_NODES
            or not 0 <= (self.gpus or 0) <= MOST_GPUS
        ):
            gpus = "" if self.gpus is None else f" with {self.gpus} GPUs each"
            nodeless_command = (
                "corral up --host ADDRESS --nodes 0, which machines can join"
            )
            raise SpecInvalid(
                f"a cluster of {self.nodes} nodes{gpus} cannot run on one machine: "
                f"allowed are {fewest} to {MOST_NODES} nodes with up to {MOST_GPUS} "
                "GPUs each",
                hint="for example: corral up --nodes 2 --gpus 2"
                + (
                    f"; for a head without a node of its own: {nodeless_command}"
                    if self.nodes == 0
                    else ""
                ),
            )
        if not 0 <= self.gpu_slices <= MOST_SLICES:
            raise SpecInvalid(
                f"--gpu-slices {self.gpu_slices} is not valid: use 1 to {MOST_SLICES}",
                hint="for example: corral up --gpus 2 --gpu-slices 7",
            )
        if self.gpu_slices and self.gpu_shares:
            raise SpecInvalid(
                f"--gpu-slices {self.gpu_slices} is not allowed together with "
                "--gpu-shares",
                hint="use only one of them: corral up --gpus 2 --gpu-slices 7; or: "
                "corral up --gpu-shares",
            )

    def _check_health(self) -> None:
        """Check the settings for the health checks of nodes. Raises: SpecInvalid."""
        if self.health not in MODES:
            raise SpecInvalid(
                f"--health {self.health[:60]} is not a valid mode; write one of "
                f"{', '.join(MODES)}",
                hint="to list unhealthy nodes without a cordon: corral up --health "
                "observe",
            )
        if not 0 <= self.check_hours <= MOST_DAYS * 24:
            raise SpecInvalid(
                f"--check-hours {self.check_hours:g} is not valid: use 0 to "
                f"{MOST_DAYS * 24:,} hours",
                hint="for example: corral up --check-hours 24; 0 for never",
            )
        if self.check_gangs < 0:
            raise SpecInvalid(
                f"--check-gangs {self.check_gangs} is not valid: use 0 or more GPUs",
                hint="for example: corral up --check-gangs 64; 0 for never",
            )

    def _check_head(self) -> None:
        """Check the settings of the head, such as its name and port. Raises:
        SpecInvalid."""
        if self.audit_syslog is not None:
            syslog_target(self.audit_syslog)
        if self.name is not None and not HEAD_NAME.fullmatch(self.name):
            raise SpecInvalid(
                f"--name {self.name[:60]} is not a valid name of a head: use lowercase "
                "letters, digits and -",
                hint="for example: corral up --name head-a",
            )
        if not 0 <= self.port <= MOST_PORT:
            raise SpecInvalid(
                f"--port {self.port} is not a valid port: use 1 to {MOST_PORT:,}, or 0 "
                "for a free port",
                hint="for example: corral up --port 8080",
            )
        check_gateway(self.gateway_port, self.gateway_workers)
        check_limits(self.user_requests, self.plan_seconds, self.trusted_proxies)
        if not 0 < self.token_days <= MOST_TOKEN_DAYS:
            raise SpecInvalid(
                f"--token-days {self.token_days:g} is not valid: use more than 0 and "
                f"at most {MOST_TOKEN_DAYS:,} days",
                hint="for example: corral up --token-days 30; to create one token that "
                "never expires, run: corral token create --expires never",
            )

    @property
    def head_name(self) -> str:
        """Return the name of this head among several."""
        return self.name or NOT_IN_NAMES.sub(
            "-", gethostname().partition(".")[0].lower()
        )

    @property
    def node_prefix(self) -> str:
        """Return the prefix of the names of this machine's nodes: the head's name and a
        dash. It keeps the names apart from those of other heads' nodes. It is "" if
        this head has a store of its own."""
        return f"{self.head_name}-" if self.store_file else ""

    def node_names(self) -> list[str]:
        """Return the names of the nodes on this machine."""
        return [f"{self.node_prefix}n{number + 1}" for number in range(self.nodes)]

    @property
    def node_token_seconds(self) -> float | None:
        """Return how long tokens of nodes are valid, in seconds. None if the engine is
        not the local one: other engines issue and revoke node tokens themselves."""
        return NODE_TOKEN_SECONDS if self.engine == LOCAL else None

    @property
    def retention(self) -> Retention:
        """Return how long ended jobs are kept."""
        return Retention(seconds=self.keep_days * DAY_SECONDS, jobs=self.keep_jobs)

    @property
    def limits(self) -> ClusterLimits:
        """Return the limits of users for which no individual limits are set, the disk
        space that stays free, and the size of the models that a node keeps."""
        cluster_limits = ClusterLimits.of(self.quotas, self.disk_reserve)
        return replace(
            cluster_limits,
            user_requests=self.user_requests,
            model_cache_bytes=model_cache_bytes(self.model_cache),
        )

    @property
    def health_rules(self) -> HealthRules:
        """Return which actions for the health of nodes are automatic."""
        return HealthRules(
            mode="observe" if self.health == "observe" else "enforce",
            check_every_seconds=self.check_hours * 3600.0,
            gang_gpus=self.check_gangs,
        )

    @classmethod
    def load(cls, place: ClusterDir) -> "ClusterSettings | None":
        """Load the settings of the cluster in this directory; None if they do not exist
        yet."""
        if (raw := read_json(place.cluster_json)) is None:
            return None
        known_fields = {
            field.name: raw[field.name] for field in fields(cls) if field.name in raw
        }
        lists = {
            setting.name: tuple(known_fields[setting.name])
            for setting in SETTINGS.values()
            if setting.name in known_fields
            and setting.is_repeated
            and not setting.is_mapping
        }
        return cls(**(known_fields | lists))

    def save(self, place: ClusterDir) -> None:
        write_atomically(place.cluster_json, json.dumps(asdict(self)))


def syslog_target(address: str) -> tuple[str, int] | str:
    """Return host and port of udp://HOST[:PORT], or the socket of unix:PATH.

    Raises: SpecInvalid.
    """
    with suppress(ValueError):  # of a port
        url_parts = urlsplit(address)
        if (
            url_parts.scheme == "unix"
            and url_parts.path.startswith("/")
            and not url_parts.netloc
        ):
            return url_parts.path
        plain = not (
            url_parts.path
            or url_parts.query
            or url_parts.fragment
            or url_parts.username
        )
        if url_parts.scheme == "udp" and url_parts.hostname and plain:
            return url_parts.hostname, url_parts.port or SYSLOG_PORT
    raise SpecInvalid(
        f"--audit-syslog {address[:200]} is not a valid address of a syslog",
        hint="write: --audit-syslog udp://log.example.org:514, or --audit-syslog unix:/dev/log",
    )


def is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def is_any(host: str) -> bool:
    """Return whether the host stands for every address of the machine."""
    return host in ("0.0.0.0", "::")


def read_json(path: Path) -> Mapping[str, Any] | None:
    """Return the JSON object in the file; None when there is no such file.

    Raises: Conflict when the file cannot be read as JSON.
    """
    try:
        content = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise Conflict(
            f"{path} cannot be read: {error}",
            hint=f"correct the file, or move it away: mv {path} /tmp",
        ) from error
    if not isinstance(content, dict):
        raise Conflict(
            f"{path} does not contain a JSON object",
            hint=f"move the file away: mv {path} /tmp",
        )
    return content


def write_atomically(path: Path, text: str) -> None:
    """Replace the content of the file atomically and durably; only its owner can read
    it."""
    temporary_path = path.with_name(f".{path.name}.{os.getpid()}")
    with os.fdopen(
        os.open(temporary_path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w"
    ) as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary_path.rename(path)


def keep_variable(
    place: ClusterDir,
    variable: str,
    name: str,
    environment: Mapping[str, str] = os.environ,
) -> str | None:
    """Store the value of an environment variable in the file `name` of the directory,
    where the next start finds it.

    Returns: the path of the file; None if the variable is not set or empty.
    """
    keep_text = environment.get(variable)
    if not keep_text:
        return None
    path = place.root / name
    write_atomically(path, keep_text + "\n")
    return str(path)


def once(path: Path, content: bytes) -> bytes:
    """Return the content of a file. If it does not exist, create it with this content,
    mode 0600, durably."""
    temporary_path = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    if not path.exists():
        with os.fdopen(
            os.open(temporary_path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb"
        ) as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileExistsError):  # another made it first: then that one counts
            os.link(temporary_path, path)
        temporary_path.unlink()
    return path.read_bytes()
