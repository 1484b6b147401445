"""Construction of the engine that a head uses."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Final

from corral.boot.declared_settings import LOOPBACK
from corral.boot.extras import check_extra
from corral.boot.settings import ClusterDir, ClusterSettings, is_any, is_loopback
from corral.boot.tls import trusted_of
from corral.domain.errors import Conflict
from corral.domain.ids import NodeId
from corral.domain.node_policy import policy_with
from corral.engines.batch.engine import HeadLinks
from corral.engines.local.engine import LocalEngine
from corral.engines.local.settings import LocalSettings
from corral.engines.ray import member
from corral.engines.ray.engine import RayEngine
from corral.engines.ray.settings import RaySettings
from corral.engines.slurm.engine import slurm_engine
from corral.ports.engine import LivingEngine
from corral.wire.joining import JoinNeeds, RayInvitation
from corral.wire.node_policy import own_policy

Build = Callable[[ClusterDir, ClusterSettings, HeadLinks], LivingEngine]


def local_settings(place: ClusterDir, settings: ClusterSettings) -> LocalSettings:
    """Convert the cluster's settings to settings of the local engine."""
    return LocalSettings(
        nodes=settings.nodes,
        gpus=settings.gpus,
        gpu_type=settings.gpu_type,
        pretend=settings.pretend,
        gpu_shares=settings.gpu_shares,
        gpu_slices=settings.gpu_slices,
        labels=settings.labels,
        topology=settings.topology,
        shared=settings.shared,
        own_disks=settings.own_disks,
        started_in=settings.started_in,
        address=LOOPBACK if is_loopback(settings.host) else "",
        trusted=trusted_of(place, settings),
        reboot_seconds=settings.reboot_seconds,
        prefix=settings.node_prefix,
        policy=policy_with(own_policy(), settings.policy),
    )


def build_engine(
    place: ClusterDir, settings: ClusterSettings, links: HeadLinks
) -> LivingEngine:
    """Return the engine that the cluster's settings request."""
    return BUILDERS[settings.engine](place, settings, links)


def _make_local_engine(
    place: ClusterDir, settings: ClusterSettings, links: HeadLinks
) -> LivingEngine:
    return LocalEngine(
        cluster_dir=place.root,
        settings=local_settings(place, settings),
        push=links.push,
        register=links.register,
        on_death=links.wake,
    )


def own_nodes(engine: LivingEngine | None) -> Collection[NodeId]:
    """Return the nodes that are agents on the head's machine, which end together with
    the head. Only the local engine has such nodes."""
    return engine.nodes.keys() if isinstance(engine, LocalEngine) else ()


def _make_ray_engine(
    place: ClusterDir, settings: ClusterSettings, links: HeadLinks
) -> LivingEngine:
    check_extra("ray", "the ray engine")
    ray_settings = RaySettings.of(settings.engine_settings)
    is_reachable = not is_loopback(settings.host) and not is_any(settings.host)
    return RayEngine(
        cluster_dir=place.root,
        settings=replace(
            ray_settings,
            host=ray_settings.host or (settings.host if is_reachable else ""),
            shared=tuple(dict.fromkeys((*ray_settings.shared, *settings.shared))),
        ),
        links=links,
        certificate=trusted_of(place, settings),
    )


def needs_of(settings: ClusterSettings) -> JoinNeeds:
    """Return the requirements of a machine that joins."""
    ray, python = member.versions() if settings.engine == "ray" else ("", "")
    return JoinNeeds(engine=settings.engine, ray=ray, python=python)


def invitation(engine: LivingEngine | None, node: NodeId) -> RayInvitation | None:
    """Return the data with which a machine joins a Ray cluster as this node; None for
    an engine that needs only a token.

    Raises: Trouble.
    """
    return engine.invite(node) if isinstance(engine, RayEngine) else None


def _make_slurm_engine(
    place: ClusterDir, settings: ClusterSettings, links: HeadLinks
) -> LivingEngine:
    return slurm_engine(
        place.root,
        settings.engine_settings,
        links,
        shared=settings.shared,
        trusted=trusted_of(place, settings),
    )


def _kubernetes(
    place: ClusterDir, settings: ClusterSettings, links: HeadLinks
) -> LivingEngine:
    try:
        from corral.engines.kubernetes.driver import head_files
        from corral.engines.kubernetes.engine import kubernetes_engine
        from corral.engines.kubernetes.settings import KubernetesSettings
    except ImportError as absent:
        raise Conflict(
            "the kubernetes engine needs a Python package that is not installed: "
            f"{absent}",
            hint="run: pip install 'corral[kubernetes]'",
        ) from absent
    kubernetes_settings = KubernetesSettings.read(settings.engine_settings)

    def head() -> Mapping[str, str]:
        return head_files(
            place.head_json, trusted_of(place, settings), kubernetes_settings.head_url
        )

    return kubernetes_engine(kubernetes_settings, links, head)


BUILDERS: Final[Mapping[str, Build]] = {
    "local": _make_local_engine,
    "ray": _make_ray_engine,
    "slurm": _make_slurm_engine,
    "kubernetes": _kubernetes,
}
