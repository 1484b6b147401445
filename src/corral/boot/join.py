"""The steps by which a machine joins another machine's cluster, and leaves it."""

import json
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from corral.boot import join_ray
from corral.boot.bring_up import settled
from corral.boot.cluster_options import ClusterOptions
from corral.boot.join_client import JoinCall, ask
from corral.boot.settings import (
    ClusterDir,
    ClusterSettings,
    read_json,
    write_atomically,
)
from corral.boot.start_head import StartFailed, last_lines, until
from corral.domain.errors import (
    Conflict,
    CorralError,
    NotFound,
    SpecInvalid,
    TokenExpired,
    Unauthorised,
)
from corral.domain.ids import NAME_RULE, NodeId, is_name
from corral.domain.node_policy import NodePolicy, policy_with
from corral.domain.users import JOIN_LINE
from corral.engines.local.processes import LocalProcess, spawn
from corral.engines.local.settings import LocalSettings
from corral.engines.ray import member
from corral.wire.joining import JoinNeeds, NodeJoined
from corral.wire.node import encode_settings
from corral.wire.node_policy import POLICY_FILE, encode_policy

if TYPE_CHECKING:
    from corral.wire import api

HEARD_SECONDS: Final = 60.0
HEARD_ON_RAY_SECONDS: Final = 110.0  # whose start takes long where a machine is busy
GONE_SECONDS: Final = 10.0
POLL_SECONDS: Final = 0.1
OWN: Final = "/v1/agents/node"
_NO_NAME: Final = re.compile(r"[^A-Za-z0-9-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinRequest:
    """Parameters of `corral join`: the address, the token, and the node's settings."""

    url: str
    token: str
    fingerprint: str = ""
    name: str | None = None
    address: str = ""
    machine: ClusterOptions = ClusterOptions()


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """Membership of this machine as a node in a cluster whose head is elsewhere."""

    place: ClusterDir
    url: str
    node: str
    # of the node, where its Ray node brings it; "": its own in `place`
    folder: str = ""

    @classmethod
    def load(cls, place: ClusterDir) -> "Joined | None":
        """Return this machine's membership; None if this machine has not joined a
        cluster."""
        stored = read_json(place.joined)
        if stored is None:
            return None
        folder = stored.get("folder", "")
        return cls(place=place, url=stored["url"], node=stored["node"], folder=folder)

    @property
    def dir(self) -> Path:
        return Path(self.folder) if self.folder else self.own

    @property
    def own(self) -> Path:
        """Return the node's folder in this directory."""
        return self.place.nodes / self.node

    @property
    def on_ray(self) -> bool:
        return bool(self.folder)

    @property
    def ray_dir(self) -> Path:
        return self.place.root / "ray"

    @property
    def agent(self) -> LocalProcess | None:
        return LocalProcess.recorded(self.dir / "agent.pid")

    def shims(self) -> list[LocalProcess]:
        """Return the shim processes that run here: one for each attempt that still has
        processes."""
        records = self.dir.glob("attempts/*/shim.pid")
        return [process for file in records if (process := LocalProcess.recorded(file))]

    def ask(self, method: str) -> Any:
        """Send a request to the head as this node.

        Raises: CorralError.
        """
        token = (self.own / "token").read_text().strip()
        trusted = self.place.trusted if self.place.trusted.exists() else None
        return ask(
            self.url, JoinCall(method=method, path=OWN, token=token), trusted=trusted
        )

    def is_known(self) -> bool:
        """Return whether the head still knows this node.

        Raises: CorralError if the head cannot be asked.
        """
        try:
            self.ask("GET")
        except NotFound:
            return True  # no heartbeat has arrived yet
        except TokenExpired:
            return True  # its agent renews it, unless the machine was off for long
        except Unauthorised:
            return False
        return True


def join(
    place: ClusterDir, wanted: JoinRequest, count_gpus: Callable[[], int]
) -> Joined:
    """Make this machine a node of the cluster. If it is a node of that cluster already,
    no request is sent and the token is not used up.

    Raises: Conflict, SpecInvalid, WrongHead, Unreachable, and the errors with which the
    head refuses.
    """
    place.create()
    policy_fields = wanted.machine.value("policy")
    known_join = _find_earlier_join(place, wanted)
    if known_join is not None:
        if policy_fields is not None:
            _write_policy(known_join, policy_with(NodePolicy(), policy_fields))
        return known_join
    name = wanted.name or _own_name()
    if not is_name(name):
        raise SpecInvalid(
            f"{name!r} is not a valid node name", hint=f"use {NAME_RULE}: --name NAME"
        )
    machine = settled(wanted.machine.with_values(nodes=1), count_gpus)
    join_needs = JoinNeeds.model_validate(_call_head(place, wanted, "GET", "/v1/join"))
    if join_needs.engine == "ray":
        join_ray.check(join_needs)
        join_ray.check_machine(machine)
    settings = _encode_node_settings(place, wanted, name, machine)
    policy = policy_with(NodePolicy(), policy_fields or {})
    secret = secrets.token_urlsafe(32)
    body = {"node": name, "sha256": sha256(secret.encode()).hexdigest()}
    answer = NodeJoined.model_validate(
        _call_head(place, wanted, "POST", "/v1/nodes/join", body)
    )
    folder = "" if answer.ray is None else answer.ray.folder
    joined = Joined(place=place, url=answer.url, node=name, folder=folder)
    if answer.ray is not None:
        join_ray.write(joined.ray_dir, name, answer.ray, machine, wanted.address)
    _write_node_files(joined, settings, secret, answer.trusted)
    _write_policy(joined, policy)
    return joined


def _call_head(
    place: ClusterDir, wanted: JoinRequest, method: str, path: str, body: Any = None
) -> Any:
    call = JoinCall(method=method, path=path, token=wanted.token, body=body)
    trusted = place.trusted if place.trusted.exists() else None
    try:
        return ask(wanted.url, call, fingerprint=wanted.fingerprint, trusted=trusted)
    except Unauthorised as error:
        if error.code != Unauthorised.code or JOIN_LINE in error.hint:
            # of a token that was known: what became of it, and that another is needed
            raise
        raise Unauthorised(
            f"the head at {wanted.url} does not know this join token",
            hint=f"create a new join token on the head: {JOIN_LINE}",
        ) from None


def _find_earlier_join(place: ClusterDir, wanted: JoinRequest) -> Joined | None:
    """Return the earlier join, or None. Raises: Conflict when the directory is another
    cluster's."""
    if place.cluster_json.exists():
        raise Conflict(
            f"{place.root} already contains a cluster, so this directory cannot join "
            "another one",
            hint="join from another directory: corral join ... --dir ~/.corral-node",
        )
    joined = Joined.load(place)
    if joined is None:
        return None
    is_other_node = joined.url != wanted.url.rstrip("/") or wanted.name not in (
        None,
        joined.node,
    )
    if not joined.is_known():
        # it was removed there: what is left of it here counts for nothing
        forget(joined)
        return None
    if is_other_node:
        raise Conflict(
            f"this machine is already node {joined.node} of the cluster at "
            f"{joined.url}",
            hint="leave that cluster first: corral leave; or join from another "
            "directory with --dir",
        )
    return joined


def _own_name() -> str:
    """Return the machine's host name, changed where needed to a valid node name."""
    host_name = socket.gethostname().split(".")[0]
    return _NO_NAME.sub("-", host_name).strip("-")[:63] or "node"


def _encode_node_settings(
    place: ClusterDir, wanted: JoinRequest, name: str, of_machine: ClusterSettings
) -> bytes:
    """Return the content of node.json, the settings of the node."""
    local = LocalSettings(
        gpus=of_machine.gpus,
        gpu_type=of_machine.gpu_type,
        pretend=of_machine.pretend,
        gpu_shares=of_machine.gpu_shares,
        gpu_slices=of_machine.gpu_slices,
        labels=of_machine.labels,
        shared=of_machine.shared,
        address=wanted.address,
    )
    memory_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    (settings,) = local.of_nodes(place.root, memory_bytes)
    trusted = str(place.trusted) if wanted.url.startswith("https") else None
    shared_folder = of_machine.shared  # the folder `shared` here is no other machine's
    node_settings = msgspec.structs.replace(
        settings,
        node=NodeId(name),
        trusted=trusted,
        shared=shared_folder,
        own_machine=True,
    )
    return encode_settings(node_settings)


def _write_node_files(
    joined: Joined, settings: bytes, secret: str, trusted: str
) -> None:
    """Write the files of a node: token, settings, and the head's address and
    certificates. joined.json comes last, when all others exist."""
    cluster_dir = joined.place
    for folder in (
        cluster_dir.nodes,
        joined.own,
        *(joined.own / name for name in _FOLDERS),
    ):
        folder.mkdir(mode=0o700, exist_ok=True)
    if trusted:
        write_atomically(cluster_dir.trusted, trusted)
    write_atomically(joined.own / "token", f"{secret}\n")
    write_atomically(joined.own / "node.json", settings.decode())
    write_atomically(cluster_dir.head_json, json.dumps({"url": joined.url}))
    stored_join = {"url": joined.url, "node": joined.node, "folder": joined.folder}
    write_atomically(cluster_dir.joined, json.dumps(stored_join))


def _write_policy(joined: Joined, policy: NodePolicy) -> None:
    """Write the node's policy into its file, which the agent reads at each start."""
    joined.dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_atomically(joined.dir / POLICY_FILE, encode_policy(policy).decode())


_FOLDERS: Final = ("attempts", "cache", "disk")


def words_of(joined: Joined) -> list[str]:
    """Return the command line of the node's agent or, on Ray, of the process that keeps
    its Ray node running."""
    if joined.on_ray:
        return member.words_of(joined.ray_dir)
    return [sys.executable, "-P", "-m", "corral.agent", str(joined.dir)]


def start_agent(joined: Joined) -> None:
    """Start the node's agent in the background, unless it runs already."""
    if joined.on_ray:
        join_ray.start(joined.ray_dir)
    elif joined.agent is None:
        spawn(words_of(joined), dict(os.environ), joined.dir / "agent.log")


def wait_for_heartbeat(joined: Joined) -> "api.NodeDetail":
    """Return the node once its first heartbeat has reached the head.

    Raises: StartFailed with the end of the agent's log, and the errors of the head.
    """
    from corral.wire.api import NodeDetail  # pydantic: only this reads an answer

    seconds = HEARD_ON_RAY_SECONDS if joined.on_ray else HEARD_SECONDS
    give_up_at = time.monotonic() + seconds
    while time.monotonic() < give_up_at:
        if joined.on_ray:
            join_ray.check_starts(joined.ray_dir)
        with suppress(NotFound):
            node_detail = NodeDetail.model_validate(joined.ask("GET"))
            if node_detail.has_heartbeat and node_detail.liveness == "alive":
                return node_detail
        time.sleep(POLL_SECONDS)
    log = joined.ray_dir / "ray.log" if joined.on_ray else joined.dir / "agent.log"
    raise StartFailed(
        f"the head at {joined.url} received no heartbeat of node {joined.node} within "
        f"{seconds:g} s; "
        f"the last lines of {log}:\n{last_lines(log, 0)}",
        hint=f"check that this machine can reach {joined.url}, then run: corral join",
    )


def stop_agent(joined: Joined) -> bool:
    """End the agent. Attempts continue to run, and the next agent finds them. Return
    False if the agent does not end in time."""
    if joined.on_ray:
        join_ray.end(joined.ray_dir)  # whose actor would start it again
    agent = joined.agent
    if agent is not None:
        agent.signal(signal.SIGTERM)
    return until(lambda: joined.agent is None, GONE_SECONDS)


def leave(joined: Joined, *, force: bool) -> None:
    """End all parts of the node on this machine, and inform the head.

    Raises: Conflict while the node holds jobs, and CorralError if the head cannot be
    informed. With `force`, neither is raised.
    """
    try:
        jobs = joined.ask("GET")["jobs"]
    except (NotFound, Unauthorised):
        jobs = []
    except CorralError:
        if not force:
            raise
        jobs = []
    if jobs and not force:
        raise Conflict(
            f"node {joined.node} still has jobs: {', '.join(jobs[:5])}",
            hint=f"move the jobs first: corral node drain {joined.node}; or leave now "
            "and lose unsaved work: corral leave --force",
        )
    kill(joined)
    with suppress(NotFound, Unauthorised):
        try:
            joined.ask("DELETE")
        except CorralError:
            if not force:
                raise
    forget(joined)


def kill(joined: Joined) -> None:
    """End the agent and all processes that it has started, at once."""
    if joined.on_ray:
        join_ray.end(joined.ray_dir)
    command = [sys.executable, "-P", "-m", "corral.agent", "--kill", str(joined.dir)]
    subprocess.run(command, check=True)
    # what starts here next is another node
    (joined.dir / "boot").unlink(missing_ok=True)


def forget(joined: Joined) -> None:
    """End all that runs of the node, and remove its files here. Raises: OSError."""
    if joined.agent is not None or joined.shims() or joined.on_ray:
        kill(joined)
    joined.place.joined.unlink(missing_ok=True)
    for file in (joined.place.head_json, joined.place.trusted):
        file.unlink(missing_ok=True)
    for folder in {joined.dir, joined.own, joined.ray_dir}:
        shutil.rmtree(folder, ignore_errors=True)
