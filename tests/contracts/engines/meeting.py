"""One user's job on a node, and a second user's job beside it that tries to reach
it."""

import base64
import io
import json
import shlex
import stat
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import corral
from corral.domain.errors import Forbidden
from corral.domain.user_isolation import Surface
from corral.wire import api
from tests.agent.image.archives import Members, docker_archive
from tests.contracts.engines.landlord import HOUR, Landlord, Tenant
from tests.podman import BUSYBOX, write_root
from tests.scenarios.house import until

CANARY: Final = "canary-of-the-first-user"
OWN: Final = "contract-own"  # name of the first user's files
FIRST, SECOND = "zoe-contract", "yan-contract"  # no machine has such accounts
TEMPORARY: Final = ("/tmp", "/var/tmp", "/dev/shm")
LISTEN: Final = (
    "import os,socket,time; s=socket.socket(socket.AF_UNIX); "
    f"s.bind('{OWN}.sock'); os.chmod('{OWN}.sock', 0o777); s.listen(); time.sleep(3600)"
)
# The second user's program. It prints the surfaces on which it has reached the first
# user.
LOOK: Final = """
import base64, json, os, socket, sys
asked = json.loads(base64.b64decode(sys.argv[1]))
canary = asked["canary"].encode()
def read(path):
    try:
        return open(path, "rb").read()
    except OSError:
        return b""
def connects(path):
    try:
        folder = os.open(os.path.dirname(path), os.O_PATH | os.O_DIRECTORY)
        socket.socket(socket.AF_UNIX).connect(f"/proc/self/fd/{folder}/{os.path.basename(path)}")
        return True
    except OSError:
        return False
def processes(name):
    pids = filter(str.isdecimal, os.listdir("/proc"))
    return any(canary in read(f"/proc/{pid}/{name}") for pid in pids)
reached = [name for name in ("environ", "cmdline") if processes(name)]
for surface, paths in asked["paths"].items():
    reached += [f"{surface}: {path}" for path in paths if read(path)]
reached += [f"Unix sockets: {path}" for path in asked["sockets"] if connects(path)]
open("control", "wb").write(canary)
reached += ["control"] * (canary in read("control"))
print("reached", json.dumps(reached), flush=True)
"""
PROCESSES: Final = {"environ": Surface.ENVIRONMENT, "cmdline": Surface.ARGUMENTS}


@dataclass(frozen=True, slots=True, kw_only=True)
class Meeting:
    """What the second user has reached, and what the cluster tells of its nodes.

    `tried`: the surfaces on which there was something to reach. `separation`: of the
    node on which both jobs ran. `status`, `doctor`: what the commands print as JSON.
    """

    engine: str
    node: str
    tried: frozenset[Surface]
    reached: Mapping[Surface, Sequence[str]]
    separation: api.UserIsolationView
    status: Any
    doctor: Any


def client_of(tenant: Tenant, user: str) -> corral.Client:
    """A client of this user, who is added where there is none yet."""
    house = tenant.house
    with house.client() as admin:
        if user not in {one.name for one in admin.users()}:
            admin.add_user(user, role="user")
        url = admin.status().head.url
    made = house.ok("token", "create", "--user", user, "-y").strip().splitlines()[-1]
    return corral.Client(url=url, token=made)


def meet(landlord: Landlord, tenant: Tenant) -> Meeting:
    """Let the users meet on the first node."""
    with client_of(tenant, FIRST) as first, client_of(tenant, SECOND) as second:
        held = _first_job(tenant, first)
        imaged = _image_job(tenant, first) if landlord.name != "kubernetes" else None
        with tenant.house.client() as admin:
            pieces = (piece.data for piece in admin.logs(held, follow=True))
            line = next(one for one in pieces if CANARY in one).partition(CANARY)[2]
            work, home = line.split()[:2]
        paths, sockets = _targets(landlord, tenant, held, work, home)
        asked = {"canary": CANARY, "paths": paths, "sockets": sockets}
        beside = tenant.keep(_submit(second, landlord, _looking(asked)))
        tenant.until_running(held)
        reached = _reached(tenant, beside)
        reached[Surface.LOGS] += _logs_read(second, held)
        reached[Surface.SNAPSHOTS] += [
            word for word in [second.job(held).workdir] if word is not None
        ]
        reached[Surface.GPUS] += _gpus_of_both(tenant, landlord.nodes[0], held, beside)
        assert tenant.house.job(held).state == "RUNNING"
        tenant.stop(held)
    tried = {Surface(name) for name, found in paths.items() if found}
    tried |= {*PROCESSES.values(), Surface.SOCKETS, Surface.LOGS, Surface.GPUS}
    if imaged is None:
        tried.discard(Surface.IMAGES)
    return _meeting(landlord, tenant, frozenset(tried), reached)


def _meeting(
    landlord: Landlord,
    tenant: Tenant,
    tried: frozenset[Surface],
    reached: Mapping[Surface, Sequence[str]],
) -> Meeting:
    node = landlord.nodes[0]
    with tenant.house.client() as admin:
        separation = next(one for one in admin.status().separation if node in one.nodes)
    return Meeting(
        engine=landlord.name,
        node=node,
        tried=tried,
        reached=reached,
        separation=separation,
        status=tenant.house.ok("status"),
        doctor=json.loads(tenant.house.corral("doctor", "--json").stdout),
    )


def _first_job(tenant: Tenant, client: corral.Client) -> str:
    """A job with something on each surface: it runs."""
    writes = [f"echo {CANARY} > {at}/{OWN}; chmod 666 {at}/{OWN}" for at in TEMPORARY]
    writes += ["mkdir -p $HOME/.cache"]
    writes += [f"echo {CANARY} > {at}/{OWN}" for at in ("$HOME", "$HOME/.cache", ".")]
    writes += [f"(umask 077; echo {CANARY} > {tenant.shared}/{OWN})"]
    run = "\n".join(
        (
            *writes,
            f"export OWN={CANARY}",
            f"python3 -c {shlex.quote(LISTEN)} &",
            f"while [ ! -e {OWN}.sock ]; do sleep 0.05; done",
            f"echo {CANARY} $PWD $HOME",
            f"sh -c '{HOUR}; true' {CANARY}",
        )
    )
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "message").write_text(CANARY)
        workdir = client.upload_workdir(folder)
    id = tenant.keep(_submit(client, tenant.landlord, run, workdir=workdir))
    tenant.until_running(id)
    return id


def _image_job(tenant: Tenant, client: corral.Client) -> str | None:
    """A job in an image of the user's own: it runs. None where no image can be made
    here."""
    if not BUSYBOX.exists():
        return None
    archive = tenant.house.root.parent / "contract-image.tar"
    docker_archive(archive, _layer())
    archive.chmod(0o644)
    image = f"docker-archive:{archive}"
    id = tenant.keep(_submit(client, tenant.landlord, HOUR, gpu=0, image=image))
    tenant.until_running(id)
    return id


def _layer() -> Members:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "root.tar"
        write_root(root)
        with tarfile.open(root) as tar:
            found = [(info, _content(tar, info)) for info in tar.getmembers()]
    secret = tarfile.TarInfo(f"etc/{OWN}")
    return [*found, (secret, CANARY.encode())]


def _content(tar: tarfile.TarFile, info: tarfile.TarInfo) -> bytes:
    return (tar.extractfile(info) or io.BytesIO()).read() if info.isfile() else b""


def _submit(
    client: corral.Client, landlord: Landlord, run: str, *, gpu: int = 1, **more: Any
) -> str:
    spec = {
        "name": "users",
        "run": run,
        "resources": {"gpu": gpu, "cpu": 0.25, "memory": "64MB"},
        "grace": "2s",
        "constraints": {"node": landlord.nodes[0]},
        **more,
    }
    return client.submit(spec)[0].id


def _looking(asked: Mapping[str, Any]) -> str:
    """A command without the canary among its words."""
    told = base64.b64encode(json.dumps(asked).encode()).decode()
    return f"cat > look.py <<'END'\n{LOOK}\nEND\npython3 look.py {told}\n{HOUR}"


def _targets(
    landlord: Landlord, tenant: Tenant, job: str, work: str, home: str
) -> tuple[dict[str, list[str]], list[str]]:
    """Paths with something of the first user, by surface, and sockets: as its ranks
    name them, and as the machine does."""
    paths: dict[str, list[str]] = {surface: [] for surface in Surface}
    paths[Surface.FILES] += [f"{work}/{OWN}", f"{work}/message", f"{home}/{OWN}"]
    paths[Surface.CACHES] += [f"{home}/.cache/{OWN}"]
    paths[Surface.TEMPORARY_FILES] += [f"{at}/{OWN}" for at in TEMPORARY]
    assert (tenant.shared / OWN).exists()
    paths[Surface.SHARED_PATHS] += [f"{tenant.shared}/{OWN}"]
    sockets = [f"{work}/{OWN}.sock"]
    head = tenant.house.root
    places = [
        *landlord.private_folders(landlord.nodes[0], job),
        head / "logs",
        head / "snapshots",
    ]
    for path in (path for place in places for path in _files(place)):
        if path.is_relative_to(tenant.shared):
            continue
        if stat.S_ISSOCK(path.lstat().st_mode):
            sockets.append(str(path))
        elif path.is_file() and (surface := _surface_of(path)) is not None:
            paths[surface].append(str(path))
    return paths, sockets


def _files(place: Path) -> Iterator[Path]:
    with suppress(OSError):
        yield from (path for path in place.rglob("*") if not path.is_symlink())


def _surface_of(path: Path) -> Surface | None:
    """None for a file in which nothing of the first user is."""
    if path.name.endswith(".tar.gz"):
        return Surface.SNAPSHOTS
    try:
        if CANARY.encode() not in path.read_bytes():
            return None
    except OSError:
        return None
    parts = set(path.parts)
    if "logs" in parts:
        return Surface.LOGS
    return Surface.IMAGES if "images" in parts else Surface.FILES


def _reached(tenant: Tenant, beside: str) -> dict[Surface, list[str]]:
    """What the second user's program has told."""
    lines: list[str] = []

    def told() -> bool:
        with tenant.house.client() as admin:
            text = "".join(piece.data for piece in admin.logs(beside))
        lines[:] = [line for line in text.splitlines() if line.startswith("reached ")]
        return bool(lines) or tenant.house.job(beside).is_over

    until(told, "the second user has looked")
    assert lines, tenant.house.logs(beside)
    words = json.loads(lines[0].removeprefix("reached "))
    assert words.pop() == "control", words
    found: dict[Surface, list[str]] = {surface: [] for surface in Surface}
    for word in words:
        name = word.partition(": ")[0]
        found[PROCESSES.get(name) or Surface(name)].append(word)
    return found


def _logs_read(client: corral.Client, job: str) -> list[str]:
    try:
        return [piece.data for piece in client.logs(job)]
    except Forbidden:
        return []


def _gpus_of_both(tenant: Tenant, node: str, first: str, second: str) -> list[str]:
    """GPUs that both jobs were given."""
    devices = tenant.house.node(node).devices
    held = {
        job: {gpu.index for gpu in devices if job in gpu.jobs}
        for job in (first, second)
    }
    assert all(held.values()), held
    return [str(index) for index in held[first] & held[second]]
