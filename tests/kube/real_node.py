"""A node of Kubernetes itself on this machine: containerd, a kubelet, images without a
registry.

Needs root, containerd, runc, ctr, a static busybox and the CNI plugins of Debian.
"""

import hashlib
import io
import json
import os
import shutil
import socket
import subprocess
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.kube.processes import Processes, free_ports
from tests.kube.waiting import until

PLUGINS: Final = Path("/usr/lib/cni")
BUSYBOX: Final = Path("/bin/busybox")
TOOLS: Final = ("containerd", "runc", "ctr")
PAUSE: Final = "docker.io/library/pause:tests"
IMAGE: Final = "docker.io/library/busybox:tests"
SUBNET: Final = "10.231.77.0/24"
BRIDGE: Final = "corral-tests0"


def can_run_nodes(folder: Path) -> bool:
    """Whether a kubelet of the folder can run pods here."""
    tools = all(shutil.which(name) for name in TOOLS)
    return (
        os.geteuid() == 0
        and tools
        and BUSYBOX.exists()
        and (PLUGINS / "bridge").exists()
        and os.access(folder / "kubelet", os.X_OK)
    )


class Node:
    """One kubelet with a containerd of its own, below one folder."""

    def __init__(self, *, name: str, place: Path, folder: Path) -> None:
        self.name = name
        self.place = place / f"node-{name}"
        self.folder = folder
        self.socket = self.place / "containerd.sock"
        self.group = f"{place.name}-{name}"
        self.processes = Processes(self.place)

    def start(self, kubeconfig: Path) -> None:
        self.place.mkdir(parents=True)
        self._write_network()
        for hierarchy in _hierarchies():
            (hierarchy / self.group).mkdir(exist_ok=True)
        (self.place / "containerd.toml").write_text(self._containerd())
        self.processes.start(
            "containerd",
            ["containerd", "--config", str(self.place / "containerd.toml")],
        )
        until(lambda: self._ctr("version").returncode == 0)
        for image, words in ((PAUSE, ["sleep", "2147483647"]), (IMAGE, ["sh"])):
            self._import(image, words)
        port, health = free_ports(2)
        (self.place / "kubelet.json").write_text(
            json.dumps(self._kubelet(port, health))
        )
        self.processes.start("kubelet", [
            str(self.folder / "kubelet"), "--config", str(self.place / "kubelet.json"),
            "--kubeconfig", str(kubeconfig), "--hostname-override", self.name,
            "--root-dir", str(self.place / "kubelet"), "--cert-dir", str(self.place / "pki"),
        ])  # fmt: skip

    def stop(self) -> None:
        """End the kubelet, all that it left running, and containerd."""
        found = self._ctr("tasks", "ls", "-q").stdout.split()
        self.processes.stop_one("kubelet")
        for task in found:
            self._ctr("tasks", "kill", "-s", "KILL", "-a", task)
        until(lambda: "RUNNING" not in self._ctr("tasks", "ls").stdout)
        self.processes.stop()
        subprocess.run(
            ["ip", "link", "delete", BRIDGE], capture_output=True, check=False
        )
        for hierarchy in _hierarchies():
            for group in sorted((hierarchy / self.group).glob("**/"), reverse=True):
                group.rmdir()
        for mount in reversed(self._mounts()):
            subprocess.run(["umount", "-l", mount], capture_output=True, check=False)

    def _mounts(self) -> list[str]:
        lines = Path("/proc/self/mounts").read_text().splitlines()
        return [
            at for line in lines if (at := line.split()[1]).startswith(f"{self.place}/")
        ]

    def _ctr(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["ctr", "--address", str(self.socket), "--namespace", "k8s.io", *words],
            capture_output=True, text=True, check=False,
        )  # fmt: skip

    def add_image(self, name: str, tree: Path, at: str) -> None:
        """An image of busybox and of this folder, below `at`."""
        self._import(name, ["sh"], {at: tree})

    @property
    def address(self) -> str:
        """By which the node calls itself, and pods reach this machine."""
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as made:
            made.connect(("192.0.2.1", 9))  # which sends nothing
            return str(made.getsockname()[0])

    def _import(
        self, name: str, words: list[str], trees: Mapping[str, Path] | None = None
    ) -> None:
        file = self.place / "image.tar"
        _write_image(file, name, words, trees or {})
        done = self._ctr("images", "import", str(file))
        assert done.returncode == 0, done.stderr
        file.unlink()

    def _write_network(self) -> None:
        folder = self.place / "cni"
        folder.mkdir()
        ipam = {
            "type": "host-local",
            "subnet": SUBNET,
            "dataDir": str(self.place / "addresses"),
        }
        bridge = {
            "type": "bridge",
            "bridge": BRIDGE,
            "isDefaultGateway": True,
            "ipam": ipam,
        }
        whole = {"cniVersion": "0.4.0", "name": "tests", "plugins": [bridge]}
        (folder / "10-tests.conflist").write_text(json.dumps(whole))

    def _containerd(self) -> str:
        cri = "io.containerd.grpc.v1.cri"
        return f"""
version = 2
root = "{self.place}/containerd"
state = "{self.place}/state"
[grpc]
address = "{self.socket}"
[plugins."{cri}"]
sandbox_image = "{PAUSE}"
restrict_oom_score_adj = true
[plugins."{cri}".cni]
bin_dir = "{PLUGINS}"
conf_dir = "{self.place}/cni"
[plugins."{cri}".containerd]
snapshotter = "native"
"""

    def _kubelet(self, port: int, health: int) -> dict[str, object]:
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "authentication": {
                "anonymous": {"enabled": True},
                "webhook": {"enabled": False},
            },
            "authorization": {"mode": "AlwaysAllow"},
            "containerRuntimeEndpoint": f"unix://{self.socket}",
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{self.group}",
            "cgroupsPerQOS": True,
            "enforceNodeAllocatable": [],
            "evictionHard": {"nodefs.available": "0%", "memory.available": "0%"},
            "failCgroupV1": False,
            "failSwapOn": False,
            "healthzPort": health,
            "port": port,
            "readOnlyPort": 0,
            "resolvConf": "",
            "podLogsDir": str(self.place / "logs"),
            "volumePluginDir": str(self.place / "volumes"),
        }


def _hierarchies() -> list[Path]:
    """The mounted hierarchies of cgroups; of version 2 there is one, and it makes its
    own."""
    root = Path("/sys/fs/cgroup")
    return (
        []
        if (root / "cgroup.controllers").exists()
        else [one for one in root.iterdir()]
    )


def _write_image(
    file: Path, name: str, words: list[str], trees: Mapping[str, Path]
) -> None:
    """An archive as docker save writes it, of busybox and of folders."""
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as made:
        for folder in ("bin", "tmp", "etc"):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o777
            made.addfile(entry)
        made.add(BUSYBOX, "bin/busybox")
        listed = subprocess.run(
            [str(BUSYBOX), "--list"], capture_output=True, text=True, check=True
        )
        for tool in listed.stdout.split():
            entry = tarfile.TarInfo(f"bin/{tool}")
            entry.type, entry.linkname = tarfile.SYMTYPE, "busybox"
            if tool != "busybox":
                made.addfile(entry)
        for at, tree in trees.items():
            made.add(tree, at)
    config = json.dumps({
        "architecture": "amd64", "os": "linux",
        "config": {"Env": ["PATH=/bin"], "Entrypoint": words},
        "rootfs": {"type": "layers",
                   "diff_ids": [f"sha256:{hashlib.sha256(layer.getvalue()).hexdigest()}"]},
    }).encode()  # fmt: skip
    manifest = [{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]
    with tarfile.open(file, "w") as whole:
        for path, content in (
            ("config.json", config),
            ("layer.tar", layer.getvalue()),
            # fmt: skip
            ("manifest.json", json.dumps(manifest).encode()),
        ):
            entry = tarfile.TarInfo(path)
            entry.size = len(content)
            whole.addfile(entry, io.BytesIO(content))
