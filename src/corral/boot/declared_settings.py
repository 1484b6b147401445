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
        "GPUs of each node",
        "N",
        default_text="all of this machine; pretend ones if it has none",
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
        "Use pretend GPUs even if there are real ones",
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
        (), "Directory that every node sees under the same path", "PATH", is_path=True
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
        "Limit for each user, such as jobs=5000 or upload_bytes=2GB (for one user: "
        "corral user set)",
        "QUOTA=LIMIT",
        option="--quota",
    )
    disk_reserve: str | None = declared(
        None,
        "Free bytes that uploads, logs and large specs leave on the head's disk",
        "SIZE",
        default_text="2 %, at least 1 GB",
    )
    user_requests: float = declared(
        200.0, "Requests a second that one user may send on average", "N"
    )
    plan_seconds: float = declared(
        900.0,
        "Seconds an hour that the planner may compute for one user",
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
    # Retention, health and tokens
    keep_days: float = declared(
        30.0, "Days for which a job is kept after its end", "DAYS"
    )
    keep_jobs: int = declared(
        50_000, "Number of ended jobs that are kept; the oldest are removed first", "N"
    )
    health: str = declared(
        "enforce",
        "enforce: unhealthy nodes are cordoned automatically; observe: they are listed",
        "MODE",
    )
    check_hours: float = declared(
        24.0,
        "Hours between checks of idle nodes with GPUs; 0: only on request",
        "HOURS",
    )
    check_gangs: int = declared(
        0,
        "Check the nodes before a gang of at least N GPUs starts; 0: never",
        "N",
    )
    token_days: float = declared(
        30.0,
        "Days for which a token is valid if none are given when it is made",
        "DAYS",
        of_head_alone=True,
    )
    operators_add_machines: bool = declared(
        False,
        "Let operators make join tokens, too: a machine is given the secrets and "
        "workdirs of all users' jobs that are placed on it",
        negative="--admins-add-machines",
        default_text="admins alone",
        of_head_alone=True,
    )
    # Engine, and layout of its nodes
    engine: str = declared(
        LOCAL,
        f"Engine that provides the nodes: {', '.join(ENGINES)}; nodes of local are on "
        "this machine",
        "ENGINE",
    )
    engine_settings: Mapping[str, str] = declared(
        {}, "Setting of the engine, NAME=VALUE", "NAME=VALUE", option="--set"
    )
    gpu_slices: int = declared(
        0,
        "Cut each pretend GPU into N parts, like MIG; 0: do not",
        "N",
        of_own_nodes=True,
    )
    labels: tuple[str, ...] = declared(
        (),
        "Label of all nodes, zone=a, or of one node, n2:zone=a",
        "NAME=VALUE",
        option="--label",
        of_own_nodes=True,
    )
    own_disks: bool = declared(
        False, "Give each of several nodes a disk of its own", of_own_nodes=True
    )
    topology: str | None = declared(
        None,
        "Place the nodes in equal racks, pods or NVLink domains: racks=2, or "
        "racks=4,pods=2,nvlink=8",
        "RULE",
        of_own_nodes=True,
    )
    policy: Mapping[str, str] = declared(
        {},
        "A field of the node's own policy, which no head can change, NAME=VALUE: "
        "root=allow, min_uid=1000, uid_range=200000-265535, deny=ann,bob, tmp=shared, "
        "memory=all, registries=ghcr.io, host_paths=/data",
        "POLICY",
        of_own_nodes=True,
    )
    # Address of the head
    host: str = declared(
        LOOPBACK,
        "Address to serve on; machines can join unless it is a loopback address",
        "ADDRESS",
    )
    port: int = declared(
        0, "Port to serve on; 0: the last head's, else a free one", "N"
    )
    tls_certificate: str | None = declared(
        None,
        "File with the TLS certificate, instead of one that Corral makes",
        "PATH",
        is_path=True,
    )
    tls_key: str | None = declared(
        None, "File with the private key of the certificate", "PATH", is_path=True
    )
    trusted_proxies: tuple[str, ...] = declared(
        (),
        "Address or network of a proxy whose headers X-Forwarded-For and "
        "X-Forwarded-Proto are trusted",
        "NETWORK",
        option="--trusted-proxy",
        default_text="none",
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
        "Name of this head among the heads of one store",
        "NAME",
        default_text="the machine's name",
    )
    shared_state: str | None = declared(
        None,
        "Directory that all heads see; it holds workdirs and logs",
        "PATH",
        is_path=True,
    )
    key_file: str | None = declared(
        None,
        "File with the key that encrypts secrets, the same for all heads",
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
        "Send the audit log also to a syslog: udp://HOST:514 or unix:/dev/log",
        "URL",
    )
    # Sign-in through an OpenID Connect provider
    oidc_issuer: str | None = declared(
        None,
        "Address of the OpenID Connect provider through which users log in",
        "URL",
    )
    oidc_client_id: str | None = declared(
        None, "Client ID of this cluster at the provider", "ID"
    )
    oidc_secret_file: str | None = declared(
        None,
        "File (mode 0600) with the client's secret",
        "PATH",
        is_path=True,
        variable=OIDC_SECRET_VARIABLE,
        variable_file=OIDC_SECRET_FILE,
    )
    oidc_roles: tuple[str, ...] = declared(
        (),
        "Role of the users in a group of the provider, GROUP=ROLE; the group * is "
        "every user",
        "GROUP=ROLE",
        option="--oidc-role",
    )
    oidc_role_claim: str = declared(
        "groups", "Claim that lists a user's groups", "CLAIM"
    )
    oidc_user_claim: str = declared(
        "preferred_username", "Claim that holds the user's name", "CLAIM"
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
        True, "Create a user at the first log-in; otherwise an admin links each user"
    )
    # directory of the newest `corral up`, which sets it without an option
    started_in: str | None = None


SETTINGS: Final[Mapping[str, Setting]] = settings_of(DeclaredSettings)
