"""Volumes as folders, and the environment of a container.

https://kubernetes.io/docs/concepts/storage/volumes/
"""

import base64
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from tests.kube.kinds import Json, Kinds
from tests.kube.security import give_to_group
from tests.kube.storage import Storage

_VARIABLE: Final = re.compile(r"\$(\$)?\(([-._A-Za-z0-9]+)\)")


class Unmountable(Exception):
    """What a pod mounts is not there: it waits."""


def prepare_volumes(
    pod: Json, folder: Path, claims: Path, storage: Storage, kinds: Kinds
) -> dict[str, Path]:
    """A folder for each volume. Raises: Unmountable."""
    found: dict[str, Path] = {}
    for volume in pod["spec"].get("volumes") or []:
        at = folder / "volumes" / volume["name"]
        if claim := volume.get("persistentVolumeClaim"):
            _there(storage, kinds, "persistentvolumeclaims", pod, claim["claimName"])
            at = claims / claim["claimName"]
        elif host := volume.get("hostPath"):
            at = Path(host["path"])
        at.mkdir(parents=True, exist_ok=True)
        for name, content, mode in _files(volume, pod, storage, kinds):
            file = at / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
            file.chmod(mode)
        give_to_group(at, pod)
        found[volume["name"]] = at
    folder.mkdir(parents=True, exist_ok=True)
    return found


def _files(
    volume: Json, pod: Json, storage: Storage, kinds: Kinds
) -> Iterator[tuple[str, bytes, int]]:
    source = volume.get("secret") or volume.get("configMap")
    if source is None:
        return
    is_secret = "secret" in volume
    name = source["secretName"] if is_secret else source["name"]
    held = _there(storage, kinds, "secrets" if is_secret else "configmaps", pod, name)
    data = held.get("data") or {}
    items = source.get("items") or [{"key": key, "path": key} for key in data]
    for item in items:
        if item["key"] not in data:
            raise Unmountable(f"references non-existent secret key: {item['key']}")
        content = data[item["key"]]
        mode = item.get("mode", source.get("defaultMode", 0o644))
        yield (
            item["path"],
            base64.b64decode(content) if is_secret else content.encode(),
            mode,
        )


def _there(storage: Storage, kinds: Kinds, plural: str, pod: Json, name: str) -> Json:
    found = storage.find(kinds[plural], pod["metadata"]["namespace"], name)
    if found is None:
        raise Unmountable(f'MountVolume.SetUp failed: {plural} "{name}" not found')
    return found


def mounts_of(
    container: Json, folders: Mapping[str, Path], environment: Mapping[str, str]
) -> list[tuple[Path, str]]:
    """(folder, path in the container). Parents come before what is mounted in them."""
    found = []
    for mount in container.get("volumeMounts") or []:
        sub = mount.get("subPath") or expanded(
            mount.get("subPathExpr", ""), environment
        )
        source = folders[mount["name"]] / sub
        source.mkdir(parents=True, exist_ok=True)
        found.append((source, mount["mountPath"]))
    return sorted(found, key=lambda one: len(one[1]))


def value_of(
    one: Json,
    pod: Json,
    node: str,
    address: str,
    environment: Mapping[str, str],
    storage: Storage,
    kinds: Kinds,
) -> str:
    """Of one entry of `env`. Raises: KeyError for a field that these tests do not
    know."""
    source = one.get("valueFrom") or {}
    if field := source.get("fieldRef"):
        known = {"spec.nodeName": node, "status.podIP": address, "status.hostIP": address,
                 "metadata.name": pod["metadata"]["name"], "metadata.uid": pod["metadata"]["uid"],
                 "metadata.namespace": pod["metadata"]["namespace"]}  # fmt: skip
        return str(known[field["fieldPath"]])
    if key := source.get("secretKeyRef"):
        held = _there(storage, kinds, "secrets", pod, key["name"])
        return base64.b64decode(held["data"][key["key"]]).decode()
    return expanded(one.get("value", ""), environment)


def expanded(text: str, environment: Mapping[str, str]) -> str:
    """$(NAME) by its value; $$(NAME) stays, and so does an unknown one."""

    def put(found: re.Match[str]) -> str:
        if found[1]:
            return f"$({found[2]})"
        return environment.get(found[2], found[0])

    return _VARIABLE.sub(put, text)
