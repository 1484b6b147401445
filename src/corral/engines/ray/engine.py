"""The Ray engine: its nodes are those of a Ray cluster, each with an agent that a Ray
actor keeps running."""

import asyncio
import logging
from collections.abc import Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Final

import yaml

from corral.domain.desired_state import DesiredState
from corral.domain.engine_limit import EngineLimit
from corral.domain.errors import Trouble
from corral.domain.ids import NodeId
from corral.domain.node import NodeKind
from corral.domain.observed_state import AttemptKey, NodeFacts
from corral.engines.batch.engine import LATE_SECONDS, HeadLinks
from corral.engines.ray import autoscaler
from corral.engines.ray.autoscaler import Sleepers
from corral.engines.ray.autoscaler_types import kinds_of, left_of, type_resources
from corral.engines.ray.bringup import RayHere, node_token
from corral.engines.ray.dead_nodes import Deaths
from corral.engines.ray.driver import RayDriver, RayTrouble
from corral.engines.ray.gpu_reservations import Holds
from corral.engines.ray.nodes import AMD, RayNode
from corral.engines.ray.reasons import why_not_begun
from corral.engines.ray.settings import RaySettings
from corral.ports.engine import query_failure
from corral.wire.joining import RayInvitation
from corral.wire.node import NodeSettings, encode_settings
from corral.wire.node_policy import POLICY_FILE, encode_policy, own_policy

NAME: Final = "ray"
LOOK_SECONDS: Final = 1.0
REFIT_SECONDS: Final = 3.0  # this often an actor is asked whether it sees to its agent
log = logging.getLogger(__name__)


@dataclass(slots=True)
class RayNodeState:
    """A node of Ray that has an agent of this cluster, or is being given one."""

    row: RayNode
    fitting: asyncio.Task[None] | None = None
    fitted_at: float = float("-inf")
    trouble: str = ""


@dataclass(slots=True, kw_only=True)
class RayEngine:
    """Implements ports.Engine. It must be created and used in the head's event loop.

    `certificate`: the certificate by which agents verify the head. `cluster`: the name
    that this cluster's own objects in Ray carry.
    """

    cluster_dir: Path
    settings: RaySettings
    links: HeadLinks
    certificate: str | None = None
    cluster: str = ""
    name: str = NAME
    cannot: Mapping[str, EngineLimit] = field(default_factory=dict)
    restarts_in_place: bool = False
    could_bring: Sequence[NodeKind] = ()
    trouble: str = ""
    is_unreachable: bool = False
    nodes: dict[NodeId, RayNodeState] = field(default_factory=dict)
    _deaths: Deaths | None = None
    # of whose attempts something is left
    _busy: set[NodeId] = field(default_factory=set)
    # on which something is to run or to stop
    _wanted: set[NodeId] = field(default_factory=set)
    _here: RayHere | None = None
    _driver: RayDriver | None = None
    _holds: Holds | None = None
    _sleepers: Sleepers | None = None
    _kinds: Sequence[NodeKind] = ()
    # of GPUs that could come: Ray's words
    _types: Mapping[str, str] = field(default_factory=dict)
    _asked: list[dict[str, float]] = field(default_factory=list)
    _looking: asyncio.Task[None] | None = None
    _placed: dict[NodeId, frozenset[AttemptKey]] = field(default_factory=dict)

    async def start(self) -> None:
        """Start Ray on this machine, or find it; then check its nodes every second.
        Raises: OSError."""
        folder = self.cluster_dir / "ray"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.cluster = self.links.cluster()[:8]
        address, token_file = self.settings.address, self.settings.token_file
        if not address:
            self._here = RayHere(
                dir=folder, cluster=self.cluster, settings=self.settings
            )
            address, token_file = self._here.begin(), self._here.token_file
        self._driver = RayDriver(
            address=address,
            cluster=self.cluster,
            token_file=token_file,
            log_file=folder / "helper.log",
        )
        self._deaths = Deaths(
            driver=self._driver,
            scales=self.settings.scales,
            folder_there=self.folder_there,
            revoke=self._revoke_token,
            wake=self.links.wake,
        )
        if self.settings.hold:
            self._holds = Holds(driver=self._driver)
        if self.settings.scales:
            self._sleepers = Sleepers(self.settings.idle_seconds)
            self._kinds, self._types = _kinds_told(self.settings)
        self._looking = asyncio.create_task(self._look_again_and_again())

    def invite(self, node: NodeId) -> RayInvitation:
        """Return the Ray address, the token and the folder with which a machine becomes
        this node. Raises: RayTrouble."""
        if self._driver is None:
            raise RayTrouble(
                "Ray has not started yet", hint="try again in a few seconds"
            )
        self._token_file(node).unlink(missing_ok=True)  # of one that was removed
        file = self._driver.token_file
        token = Path(file).read_text().strip() if file else ""
        return RayInvitation(
            address=self._driver.address, token=token, folder=self.folder_there(node)
        )

    @property
    def shown_by(self) -> str:
        return self._driver.shown_by if self._driver is not None else ""

    def observe(self) -> Mapping[NodeId, str]:
        return {} if self._deaths is None else dict(self._deaths.proofs)

    def gone(self) -> Set[NodeId]:
        """Return the nodes that the autoscaler removed, except those whose agents still
        report. The set is empty without an autoscaler file. Removed nodes are then
        kept, since only they show what the autoscaler could add."""
        removed_nodes = (
            self._deaths.taken
            if self._deaths is not None and self._kinds
            else frozenset()
        )
        return {node for node in removed_nodes if not self.links.hears(node)}

    def apply(self, wanted: DesiredState) -> None:
        (self._wanted.add if wanted.run or wanted.stop else self._wanted.discard)(
            wanted.node
        )
        self._placed[wanted.node] = frozenset(launch.key for launch in wanted.run)
        if self._holds is not None:
            self._holds.want(wanted)
        self.links.push(wanted)

    def amend(self, word: NodeFacts) -> NodeFacts:
        """Return the node's report (`word`), in which GPUs that Ray has not reserved
        for Corral are marked as taken."""
        (self._busy.add if word.seen else self._busy.discard)(word.node)
        return word if self._holds is None else self._holds.amend(word)

    def labels_of(self, node: NodeId) -> tuple[tuple[str, str], ...] | None:
        """Return the labels that Ray reports for the node; None for a node that Ray
        does not know now."""
        ray_node_state = self.nodes.get(node)
        return None if ray_node_state is None else ray_node_state.row.labels

    def is_empty(self) -> bool:
        return not self._busy

    def says(self, key: AttemptKey) -> str:
        reasons = [
            self._says_of(node) for node, keys in self._placed.items() if key in keys
        ]
        return next(filter(None, reasons), "")

    def _says_of(self, node: NodeId) -> str:
        ray_node_state = self.nodes.get(node)
        row, trouble = (
            (None, "")
            if ray_node_state is None
            else (ray_node_state.row, ray_node_state.trouble)
        )
        return why_not_begun(node, row, trouble=trouble, heard=self.links.hears(node))

    def look_after(self) -> None:
        """Restart the head's own Ray if it died. It must be called every second.

        Raises: the error that ended the engine's own task.
        """
        if self._looking is not None and self._looking.done():
            self._looking.result()
        if self._here is not None:
            self._here.look_after()

    async def down(self, *, kill: bool) -> None:
        """End the agents; with `kill`, end all other processes of the nodes and the
        head's own Ray too."""
        await self._stop_looking()
        if self._driver is not None:
            living = [node for node in self.nodes.values() if node.row.alive]
            end_calls = [
                self._driver.end(ray_node_state.row.ray_node, kill=kill)
                for ray_node_state in living
            ]
            for outcome in await asyncio.gather(*end_calls, return_exceptions=True):
                if isinstance(outcome, Exception):
                    log.warning("the agent of a node could not be ended: %s", outcome)
        if kill:
            await self._leave_ray()
        await self._close_driver()

    def close(self) -> None:
        """Stop the supervision of Ray and its nodes; what runs there runs on."""
        if self._looking is not None:
            self._looking.cancel()
        if self._driver is not None:
            self._driver.kill()

    async def _look_again_and_again(self) -> None:
        while True:
            late = asyncio.get_running_loop().call_later(LATE_SECONDS, self._say_late)
            try:
                await self._look()
                self.is_unreachable = False
                self._say("")
            except (Trouble, OSError) as trouble:
                self.is_unreachable = True
                self._say(query_failure("Ray", trouble))
            finally:
                late.cancel()
            await asyncio.sleep(LOOK_SECONDS)

    def _say_late(self) -> None:
        """Log that Ray has not answered for a while, or its error if one is known. The
        first start of Ray takes long."""
        which = "on this machine" if self._here else f"at {self.settings.address}"
        self._say(
            self.trouble
            or f"the Ray cluster {which} has not answered for {LATE_SECONDS:g} s"
        )

    async def _look(self) -> None:
        assert self._driver is not None
        look = await self._driver.look()
        assert self._deaths is not None
        self.could_bring = left_of(
            self._kinds, [node for node in look.nodes if self._is_known(node)]
        )
        await self._scale_cluster({row.id: row for row in look.nodes})
        for row in look.nodes:
            ray_node_state = self.nodes.get(row.id)
            if row.alive and self._is_asleep(row):
                continue
            if row.alive:
                self._deaths.lives(row.id)
                self._keep(row)
                if self._holds is not None:
                    self._holds.settle(row, look.waiting_gpus)
                continue
            if ray_node_state is not None:
                ray_node_state.row = row
            sleeps = self._is_asleep(row)
            is_ours = (
                ray_node_state is not None
                or sleeps
                or self._folder_here(row.id).exists()
            )
            if is_ours and not self.links.hears(row.id):
                await self._deaths.judge(row, look, sleeps=sleeps)

    def _is_asleep(self, row: RayNode) -> bool:
        return self._sleepers is not None and self._sleepers.sleeps(row)

    def _is_known(self, row: RayNode) -> bool:
        """Return whether the head has a report from the node's agent, or the node
        sleeps. Any other node still counts as one that the autoscaler could add."""
        return self._is_asleep(row) or self.links.hears(row.id)

    async def _scale_cluster(self, rows: Mapping[NodeId, RayNode]) -> None:
        """Ask Ray's autoscaler for nodes for the waiting jobs, and leave idle nodes to
        it. Raises: Trouble."""
        if self._sleepers is None:
            return
        assert self._driver is not None
        waiting_jobs = self.links.waiting()
        busy = {id for id in rows if id in self._busy or id in self._wanted}
        run = [rows[id] for id in sorted(busy)]
        bundle_list = (
            autoscaler.bundles(run, waiting_jobs, self._types) if waiting_jobs else []
        )
        if bundle_list != self._asked:
            await self._driver.ask_for(bundle_list)
            self._asked = bundle_list
        now = asyncio.get_running_loop().time()
        for id in self._sleepers.tired(
            rows, busy=busy, waits=bool(waiting_jobs), now=now
        ):
            await self._put_to_sleep(rows[id])

    async def _put_to_sleep(self, row: RayNode) -> None:
        """Remove the agent and the GPU reservations from the node, so that Ray sees it
        as idle. Raises: Trouble."""
        assert self._driver is not None
        log.info("node %s is idle: Ray may remove it", row.id)
        ray_node_state = self.nodes.pop(row.id, None)
        if ray_node_state is not None and ray_node_state.fitting is not None:
            ray_node_state.fitting.cancel()
        if self._holds is not None:
            await self._holds.let_go(row.id)
        await self._driver.end(row.ray_node, kill=False)

    def _keep(self, row: RayNode) -> None:
        ray_node_state = self.nodes.get(row.id)
        if ray_node_state is None or ray_node_state.row.ray_node != row.ray_node:
            if ray_node_state is not None and ray_node_state.fitting is not None:
                ray_node_state.fitting.cancel()
            ray_node_state = self.nodes[row.id] = RayNodeState(row)
        ray_node_state.row = row
        now = asyncio.get_running_loop().time()
        idle = ray_node_state.fitting is None or ray_node_state.fitting.done()
        if idle and now >= ray_node_state.fitted_at + (
            REFIT_SECONDS if not ray_node_state.trouble else LOOK_SECONDS
        ):
            ray_node_state.fitting = asyncio.create_task(
                self._outfit_node(ray_node_state)
            )

    async def _outfit_node(self, kept: RayNodeState) -> None:
        """Write the node's files and let its agent run."""
        assert self._driver is not None
        try:
            files = await self._files(kept.row)
            await self._driver.outfit(
                kept.row.ray_node,
                node=kept.row.id,
                folder=self.folder_there(kept.row.id),
                files=files,
            )
            kept.trouble = ""
        except (Trouble, OSError) as trouble:
            if kept.trouble != str(trouble):
                log.warning("node %s has no agent yet: %s", kept.row.id, trouble)
            kept.trouble = str(trouble)
        kept.fitted_at = asyncio.get_running_loop().time()

    async def _files(self, row: RayNode) -> dict[str, bytes]:
        """Return the files that the node's folder needs before its agent is started."""
        token = node_token(self._folder_here(row.id))
        await self.links.register(row.id, sha256(token.strip()).hexdigest())
        files = {
            "token": token,
            "head.json": (self.cluster_dir / "head.json").read_bytes(),
            "node.json": encode_settings(self.settings_of(row)),
            POLICY_FILE: encode_policy(own_policy()),
        }
        if self.certificate is not None:
            files["head.pem"] = Path(self.certificate).read_bytes()
        return files

    def settings_of(self, row: RayNode) -> NodeSettings:
        """Return the settings of the node's agent."""
        folder = self.folder_there(row.id)
        pretend = self.settings.pretend or row.pretend
        return NodeSettings(
            node=row.id,
            head_file=f"{folder}/head.json",
            trusted=f"{folder}/head.pem" if self.certificate is not None else None,
            address=row.address,
            index=row.index,
            pretend_gpus=row.gpus if pretend else None,
            amd_gpus=row.gpus if row.vendor == AMD and not pretend else 0,
            gpu_type=row.gpu_type or self.settings.gpu_type,
            shared=self.settings.shared,
            labels=row.labels,
            own_machine=True,
            isolation="hide",
            hidden=(self.settings.node_dir, str(self.cluster_dir)),
        )

    def folder_there(self, node: NodeId) -> str:
        """Return the path of the node's folder on the node's own machine."""
        return f"{self.settings.node_dir}/{self.cluster}/{node}"

    def _folder_here(self, node: NodeId) -> Path:
        """Return the folder in which the head keeps the node's files."""
        return self.cluster_dir / "nodes" / node

    def _token_file(self, node: NodeId) -> Path:
        return self._folder_here(node) / "token"

    async def _revoke_token(self, node: NodeId) -> None:
        """Revoke the token of a node that was removed, since its machine may now belong
        to another node. If the node comes back, it gets a new token. Raises: Trouble.
        """
        self._token_file(node).unlink(missing_ok=True)
        await self.links.forget(node)

    def _say(self, trouble: str) -> None:
        """Log a trouble of Ray when it changes; "" means that Ray answers again."""
        if trouble != self.trouble:
            self.trouble = trouble
            log.warning(trouble or f"{self.name} answers again")

    async def _stop_looking(self) -> None:
        tasks = [node.fitting for node in self.nodes.values()] + [self._looking]
        live_tasks = [task for task in tasks if task is not None]
        for task in live_tasks:
            task.cancel()
        # looked after no more, also while the nodes are taken down
        self._looking = None
        await asyncio.gather(*live_tasks, return_exceptions=True)
        if self._holds is not None:
            await self._holds.close()

    async def _leave_ray(self) -> None:
        """End the head's own Ray; in any other Ray, release all GPU reservations of
        this cluster."""
        own_ray, self._here = self._here, None
        if own_ray is not None:
            await self._close_driver()  # it is a program of this Ray
            await own_ray.down()
        elif self._holds is not None:
            with suppress(Trouble):
                await self._holds.let_all_go()

    async def _close_driver(self) -> None:
        if self._driver is not None:
            await self._driver.close()


def _kinds_told(settings: RaySettings) -> tuple[Sequence[NodeKind], Mapping[str, str]]:
    """Return the kinds of nodes that the autoscaler could add, and GPU type -> Ray's
    resource name, both from the autoscaler's file. Both are empty if no file can be
    read."""
    if not settings.autoscaling_config:
        return (), {}
    try:
        config = yaml.safe_load(Path(settings.autoscaling_config).read_text())
        return kinds_of(config, gpu_type=settings.gpu_type), type_resources(config)
    except (OSError, ValueError, TypeError, AttributeError, yaml.YAMLError) as wrong:
        log.warning(
            "the nodes that Ray's autoscaler could add are not known: %s", wrong
        )
        return (), {}
