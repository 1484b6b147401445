"""Options of `corral up`, by what they are about."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from corral.boot.settings import ENGINES
from corral.cli.option_types import (
    Address,
    Assignment,
    Days,
    Engine,
    HealthMode,
    Hours,
    Label,
    NameText,
    NetworkText,
    PathText,
    Policy,
    TopologyRule,
    Url,
    UserName,
    WholeNumber,
)
from corral.cli.up_limits import UserLimitOptions

POLICY_HELP = (
    "A field of the node's own policy, which no head can change, NAME=VALUE: root=allow, "
    "min_uid=1000, uid_range=200000-265535, deny=ann,bob, tmp=shared, memory=all, "
    "registries=ghcr.io, host_paths=/data; may be repeated."
)


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class Care(UserLimitOptions):
    """Options of retention and of automatic actions of the head."""

    keep_days: Annotated[
        Days | None,
        Parameter(
            name="--keep-days", help="Days for which a job is kept after its end (30)."
        ),
    ] = None
    keep_jobs: Annotated[
        WholeNumber | None,
        Parameter(
            name="--keep-jobs",
            help="Number of ended jobs that are kept, the newest (50000).",
        ),
    ] = None
    health: Annotated[
        HealthMode | None,
        Parameter(
            name="--health",
            help="enforce: nodes that ail are cordoned by themselves; observe: they are listed "
            "(enforce).",
        ),
    ] = None
    check_hours: Annotated[
        Hours | None,
        Parameter(
            name="--check-hours",
            help="So often are idle nodes with GPUs checked; 0: only when asked (24).",
        ),
    ] = None
    check_gangs: Annotated[
        WholeNumber | None,
        Parameter(
            name="--check-gangs",
            help="Gangs of at least N GPUs start after a check of their nodes; 0: none does (0).",
        ),
    ] = None
    token_days: Annotated[
        Days | None,
        Parameter(
            name="--token-days",
            help="Days after which a token ends that is made without an end of its own (30).",
        ),
    ] = None
    operators_add_machines: Annotated[
        bool | None,
        Parameter(
            name="--operators-add-machines",
            negative="--admins-add-machines",
            help="Let operators make join tokens, too: a machine is given the secrets and workdirs "
            "of all users' jobs that are placed on it (admins alone).",
        ),
    ] = None

    @property
    def given(self) -> dict[str, Any]:
        """Return the options as fields of `ClusterOptions`."""
        return {
            **self.limits,
            "keep_days": self.keep_days,
            "keep_jobs": self.keep_jobs,
            **self.bounds,
            "health": self.health,
            "check_hours": self.check_hours,
            "check_gangs": self.check_gangs,
            "token_days": self.token_days,
            "operators_add_machines": self.operators_add_machines,
        }


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    """Options of the engine that lends the nodes."""

    engine: Annotated[
        Engine | None,
        Parameter(
            name="--engine",
            help=f"What lends the nodes: {', '.join(ENGINES)}. Those of local are of this machine.",
        ),
    ] = None
    settings: Annotated[
        tuple[Assignment, ...],
        Parameter(
            name="--set",
            negative="",
            show_default=False,
            help="A setting of the engine's own, NAME=VALUE; may be repeated.",
        ),
    ] = ()

    @property
    def given(self) -> dict[str, Any]:
        """Return the options as fields of `ClusterOptions`."""
        return {
            "engine": self.engine,
            "engine_settings": pairs_of(self.settings, self.engine) or None,
        }


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class NodeLayoutOptions:
    """Options of the nodes: labels, partitioned GPUs, and their view of the disk."""

    gpu_slices: Annotated[
        WholeNumber | None,
        Parameter(
            name="--gpu-slices", help="Cut each pretend GPU into N parts, like MIG."
        ),
    ] = None
    label: Annotated[
        tuple[Label, ...],
        Parameter(
            negative="",
            show_default=False,
            help="A label of all nodes, zone=a, or of one, n2:zone=a; may be repeated.",
        ),
    ] = ()
    own_disks: Annotated[
        bool | None,
        Parameter(
            name="--own-disks", help="Give each of several nodes a disk of its own."
        ),
    ] = None
    topology: Annotated[
        TopologyRule | None,
        Parameter(
            help="Where nodes lie, in equal parts: racks=2, or racks=4,pods=2,nvlink=8."
        ),
    ] = None
    policy: Annotated[
        tuple[Policy, ...],
        Parameter(negative="", show_default=False, help=POLICY_HELP),
    ] = ()

    @property
    def given(self) -> dict[str, Any]:
        """Return the options as fields of `ClusterOptions`."""
        return {
            "gpu_slices": self.gpu_slices,
            "labels": self.label or None,
            "topology": self.topology,
            "own_disks": self.own_disks,
            "policy": policy_of(self.policy),
        }


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class HeadOptions:
    """Options of the head's address and certificate."""

    host: Annotated[
        Address | None,
        Parameter(
            name="--host",
            help="Address to serve on (127.0.0.1); on another than loopback machines can join.",
        ),
    ] = None
    port: Annotated[
        WholeNumber | None,
        Parameter(
            name="--port",
            help="Port to serve on; 0: the last head's, else a free one (0).",
        ),
    ] = None
    tls_certificate: Annotated[
        Path | None,
        Parameter(
            name="--tls-certificate",
            help="Certificate file, instead of one that is made.",
        ),
    ] = None
    tls_key: Annotated[
        Path | None, Parameter(name="--tls-key", help="Its key file.")
    ] = None
    trusted_proxy: Annotated[
        tuple[NetworkText, ...],
        Parameter(
            name="--trusted-proxy",
            negative="",
            show_default=False,
            help="Address or network of a proxy whose X-Forwarded-For and X-Forwarded-Proto "
            "headers are believed; may be repeated (none).",
        ),
    ] = ()

    @property
    def given(self) -> dict[str, Any]:
        """Return the options as fields of `ClusterOptions`."""
        files = {"tls_certificate": self.tls_certificate, "tls_key": self.tls_key}
        named = {
            name: str(file.absolute()) if file else None for name, file in files.items()
        }
        return {
            "host": self.host,
            "port": self.port,
            "trusted_proxies": self.trusted_proxy or None,
            **named,
        }


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class Watching:
    """Options of monitoring outside the head."""

    monitoring: Annotated[
        bool | None,
        Parameter(
            name="--monitoring",
            help="Run Prometheus, where it is installed, with Corral's rules of what to warn of.",
        ),
    ] = None
    audit_syslog: Annotated[
        Url | None,
        Parameter(
            name="--audit-syslog",
            help="Send the audit log to a syslog, too: udp://HOST:514 or unix:/dev/log.",
        ),
    ] = None

    @property
    def given(self) -> dict[str, Any]:
        """Return the options as fields of `ClusterOptions`."""
        return {"monitoring": self.monitoring, "audit_syslog": self.audit_syslog}


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class Several:
    """Options that make this head one of several on one store."""

    store_file: Annotated[
        PathText | None,
        Parameter(
            name="--store-file",
            help="A file (0600) with the address of the PostgreSQL database that several heads "
            "share; or set CORRAL_STORE.",
        ),
    ] = None
    name: Annotated[
        NameText | None,
        Parameter(
            name="--name",
            help="What this head is called among them (the machine's name).",
        ),
    ] = None
    shared_state: Annotated[
        Path | None,
        Parameter(
            name="--shared-state",
            help="A directory that all heads see, for workdirs and logs.",
        ),
    ] = None
    key_file: Annotated[
        Path | None,
        Parameter(
            name="--key-file", help="The key of secrets, the same for all (DIR/key)."
        ),
    ] = None

    @property
    def given(self) -> dict[str, Any]:
        """Return the options as fields of `ClusterOptions`."""
        file = self.store_file
        if file is not None and "://" not in file:
            file = str(Path(file).expanduser().absolute())
        return {
            "store_file": file,
            "name": self.name,
            "shared_state": str(self.shared_state.absolute())
            if self.shared_state
            else None,
            "key_file": str(self.key_file.absolute()) if self.key_file else None,
        }


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class SshOptions:
    """Other machines that are to join, over ssh."""

    hosts: Annotated[
        Path | None,
        Parameter(
            name="--hosts",
            help="A file with a machine a line, [USER@]HOST[:PORT]: Corral is installed there over "
            "ssh, and it joins. What stands behind it goes to corral join there.",
        ),
    ] = None
    ssh_user: Annotated[
        UserName | None,
        Parameter(name="--ssh-user", help="Whom to be on those machines."),
    ] = None
    ssh_key: Annotated[
        Path | None,
        Parameter(name="--ssh-key", help="The key to show there (that of ssh)."),
    ] = None
    python: Annotated[
        PathText | None,
        Parameter(
            name="--python",
            help="A Python there that has Corral already: then nothing is installed.",
        ),
    ] = None


def policy_of(words: tuple[str, ...]) -> dict[str, str] | None:
    """NAME=VALUE, each, of a node's policy; None without any. Raises: SpecInvalid."""
    from corral.domain.errors import SpecInvalid
    from corral.domain.node_policy import NodePolicy, policy_with

    for word in words:
        if "=" not in word:
            raise SpecInvalid(
                f"--policy {word[:60]} is not NAME=VALUE", hint="--policy root=allow"
            )
    given_fields = {
        name.strip(): value
        for name, _, value in (word.partition("=") for word in words)
    }
    policy_with(NodePolicy(), given_fields)
    return given_fields or None


def pairs_of(words: tuple[str, ...], engine: str | None = None) -> dict[str, str]:
    """NAME=VALUE, each. Raises: SpecInvalid."""
    from corral.domain.errors import SpecInvalid

    for word in words:
        if not word.partition("=")[0].strip() or "=" not in word:
            from corral.boot.engine_settings import example

            hint = f"write: --set {example(word.strip(), engine)}"
            raise SpecInvalid(f"{word} is no NAME=VALUE", hint=hint)
    return {
        name.strip(): value
        for name, _, value in (word.partition("=") for word in words)
    }
