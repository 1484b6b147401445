"""All settings of a cluster, each declared once.

The options of `corral up` and their help, the settings file, and the settings by
environment variables are derived from these declarations. `docs/reference/cli.md` lists
them in this order.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from corral.boot.setting import Setting, declared, settings_of

LOOPBACK: Final = "127.0.0.1"
LOCAL: Final = "local"
ENGINES: Final = (LOCAL, "ray", "slurm", "kubernetes")
STORE_VARIABLE: Final = "CORRAL_STORE"
STORE_FILE: Final = "store"
OIDC_SECRET_VARIABLE: Final = "CORRAL_OIDC_SECRET"
OIDC_SECRET_FILE: Final = "oidc-secret"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredSettings:
    """Settings of a cluster as data. None means that this machine chooses the value, or
    that the setting has no value."""

    # Nodes of this machine
    nodes: int = declared(1, "Number of nodes on this machine", "N", of_own_nodes=True)
    gpus: int | None = declared(
        None,
        "Number of GPUs of each node; pretend GPUs if this machine has none",
        "N",
        default_text="all GPUs of this machine, in equal parts",
        of_own_nodes=True,
    )
    gpu_type: str | None = declared(
        None,
        "Type of pretend GPUs",
        "TYPE",
        default_text="h100",
        of_own_nodes=True,
    )
    pretend: bool = declared(
        False,
        "Use pretend GPUs even if this machine has real GPUs",
        is_switch=True,
        of_own_nodes=True,
    )
    gpu_shares: bool = declared(
        False,
        "Let jobs request a share of a GPU",
        is_switch=True,
        of_own_nodes=True,
    )
    shared: tuple[str, ...] = declared(
        (), "Directory that has the same path on every node", "PATH", is_path=True
    )
    reboot_seconds: float = declared(
        30.0,
        "Seconds after which a node whose agent died is started again",
        "SECONDS",
        option="--reboot",
        of_own_nodes=True,
    )
    # Limits of users
    quotas: tuple[str, ...] = declared(
        (),
        "Limit for every user, for example jobs=5000 or upload_bytes=2GB; to set the "
        "limit of one user, run corral user set",
        "QUOTA=LIMIT",
        option="--quota",
    )
    disk_reserve: str | None = declared(
        None,
        "Free space to keep on the head's disk; uploads, logs and large specs cannot "
        "use it",
        "SIZE",
        default_text="2 %, at least 1 GB",
    )
    user_requests: float = declared(
        200.0, "Requests a second that one user may send on average", "N"
    )
    plan_seconds: float = declared(
        900.0,
        "Computing time of the planner that one user may use each hour, in seconds",
        "SECONDS",
        of_head_alone=True,
    )
    keep_work_days: float = declared(
        7.0,
        "Days for which nodes keep what an attempt wrote into its work folder",
        "DAYS",
    )
    keep_work_size: str = declared(
        "50GB",
        "Total size of the kept work folders of one user on a node; the oldest are "
        "removed first",
        "SIZE",
    )
    model_cache: str | None = declared(
        None,
        "Size of the models that a node keeps; the least recently used are removed "
        "first",
        "SIZE",
        default_text="a fifth of its disk",
    )
    # Retention, health and tokens
    keep_days: float = declared(
        30.0, "Days for which a job is kept after its end", "DAYS"
    )
    keep_jobs: int = declared(
        50_000, "Number of ended jobs that are kept; the oldest are removed first", "N"
    )
    health: str = declared(
        "enforce",
        "What to do with unhealthy nodes: enforce cordons them, observe only lists "
        "them",
        "MODE",
    )
    check_hours: float = declared(
        24.0,
        "Hours between health checks of idle nodes with GPUs; 0: check only on request",
        "HOURS",
    )
    check_gangs: int = declared(
        0,
        "Run health checks on the nodes before a gang of at least N GPUs starts; 0: "
        "never",
        "N",
    )
    token_days: float = declared(
        30.0,
        "Days for which a token is valid if it is created without --expires",
        "DAYS",
        of_head_alone=True,
    )
    operators_add_machines: bool = declared(
        False,
        "Allow operators, not only admins, to create join tokens; a machine that joins "
        "receives the secrets and workdirs of all jobs that are placed on it",
        negative="--admins-add-machines",
        default_text="only admins",
        of_head_alone=True,
    )
    # Engine, and layout of its nodes
    engine: str = declared(
        LOCAL,
        f"Engine that provides the nodes: {', '.join(ENGINES)}; local starts them on "
        "this machine",
        "ENGINE",
    )
    engine_settings: Mapping[str, str] = declared(
        {}, "Setting of the engine", "NAME=VALUE", option="--set"
    )
    gpu_slices: int = declared(
        0,
        "Divide each pretend GPU into N slices, like MIG; 0: no slices",
        "N",
        of_own_nodes=True,
    )
    labels: tuple[str, ...] = declared(
        (),
        "Label of all nodes (zone=a) or of one node (n2:zone=a)",
        "NAME=VALUE",
        option="--label",
        of_own_nodes=True,
    )
    own_disks: bool = declared(
        False,
        "Separate the disks of several nodes on this machine, so that a node does not "
        "see the files that another writes",
        default_text="all nodes share this machine's disk",
        of_own_nodes=True,
    )
    topology: str | None = declared(
        None,
        "Divide the nodes into equal racks, pods or NVLink domains, for example "
        "racks=2 or racks=4,pods=2,nvlink=8",
        "RULE",
        of_own_nodes=True,
    )
    policy: Mapping[str, str] = declared(
        {},
        "Field NAME=VALUE of the node's own policy, which no head can change: "
        "root=allow; min_uid=1000; uid_range=200000-265535; deny=ann,bob; tmp=shared; "
        "memory=all; disk=half; registries=ghcr.io; host_paths=/data; for all fields, "
        "see docs/guides/node-policy.md",
        "POLICY",
        of_own_nodes=True,
    )
    # Address of the head
    host: str = declared(
        LOOPBACK,
        "Address on which the head listens; other machines can join unless it is a "
        "loopback address",
        "ADDRESS",
    )
    port: int = declared(
        0,
        "Port on which the head listens; 0: the previous head's port, or a free one",
        "N",
    )
    tls_certificate: str | None = declared(
        None,
        "File with the TLS certificate; without it, Corral creates a certificate",
        "PATH",
        is_path=True,
    )
    tls_key: str | None = declared(
        None, "File with the private key of the TLS certificate", "PATH", is_path=True
    )
    trusted_proxies: tuple[str, ...] = declared(
        (),
        "Address or network of a proxy whose headers X-Forwarded-For and "
        "X-Forwarded-Proto are trusted",
        "NETWORK",
        option="--trusted-proxy",
        default_text="none",
    )
    # Gateway to the services
    gateway_port: int = declared(
        0,
        "Port of the gateway to the services; 0: the previous one, or the first free "
        "one from 8480 on",
        "N",
        of_head_alone=True,
    )
    gateway_workers: int = declared(
        1,
        "Number of processes of the gateway; one for each core is the most useful",
        "N",
        of_head_alone=True,
    )
    fallback_private_ok: bool = declared(
        False,
        "Allow fallbacks of services at private addresses and without TLS, which "
        "requests then reach from the gateway",
        of_head_alone=True,
    )
    # Several heads on one store
    store_file: str | None = declared(
        None,
        "File (mode 0600) with the address of the PostgreSQL database that several "
        "heads share",
        "PATH",
        is_path=True,
        keeps_url=True,
        variable=STORE_VARIABLE,
        variable_file=STORE_FILE,
    )
    name: str | None = declared(
        None,
        "Name of this head, if several heads share one store",
        "NAME",
        default_text="the machine's name",
    )
    shared_state: str | None = declared(
        None,
        "Directory for workdirs and logs that all heads can read and write",
        "PATH",
        is_path=True,
    )
    key_file: str | None = declared(
        None,
        "File with the key that encrypts secrets; all heads need the same key",
        "PATH",
        is_path=True,
        default_text="DIR/key",
    )
    # Monitoring outside the head
    monitoring: bool = declared(
        False,
        "Run Prometheus with Corral's alerting rules, if Prometheus is installed",
        of_head_alone=True,
    )
    audit_syslog: str | None = declared(
        None,
        "Also send the audit log to this syslog: udp://HOST:514 or unix:/dev/log",
        "URL",
    )
    # Sign-in through an OpenID Connect provider
    oidc_issuer: str | None = declared(
        None,
        "Address of the OpenID Connect provider through which users log in",
        "URL",
    )
    oidc_client_id: str | None = declared(
        None, "Client ID of this cluster at the OpenID Connect provider", "ID"
    )
    oidc_secret_file: str | None = declared(
        None,
        "File (mode 0600) with the client secret for the OpenID Connect provider",
        "PATH",
        is_path=True,
        variable=OIDC_SECRET_VARIABLE,
        variable_file=OIDC_SECRET_FILE,
    )
    oidc_roles: tuple[str, ...] = declared(
        (),
        "Role of the users in a group of the OpenID Connect provider; the group * "
        "means every user",
        "GROUP=ROLE",
        option="--oidc-role",
    )
    oidc_role_claim: str = declared(
        "groups", "Claim of the ID token that lists a user's groups", "CLAIM"
    )
    oidc_user_claim: str = declared(
        "preferred_username",
        "Claim of the ID token that contains the user's name",
        "CLAIM",
    )
    oidc_domain: str | None = declared(
        None,
        "Accept only users with e-mail addresses of this domain; the part before the "
        "@ is the user's name",
        "DOMAIN",
    )
    oidc_hosted_domain: str | None = declared(
        None,
        "With Google: the Workspace domain whose accounts may log in",
        "DOMAIN",
        default_text="--oidc-domain",
    )
    oidc_create: bool = declared(
        True,
        "Create a user at the first log-in through the provider; otherwise an admin "
        "links each user",
    )
    # directory of the newest `corral up`, which sets it without an option
    started_in: str | None = None


SETTINGS: Final[Mapping[str, Setting]] = settings_of(DeclaredSettings)
