"""A kubeconfig that changes, and a login program that fails: the way in is found
again."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from lightkube.resources.core_v1 import Node

from corral.domain.errors import Trouble
from corral.engines.kubernetes.api_server import Access, client_of
from corral.engines.kubernetes.rights import missing_rights
from corral.engines.kubernetes.settings import KubernetesSettings
from corral.engines.kubernetes.watch_cache import Mirror
from tests.kube.cluster import NAMESPACE, Cluster, kubernetes
from tests.kube.server import ALL, Rule
from tests.patience import PATIENCE_SECONDS

CREDENTIAL = {
    "apiVersion": "client.authentication.k8s.io/v1beta1",
    "kind": "ExecCredential",
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with kubernetes(tmp_path_factory.mktemp("kube")) as one:
        yield one


def access_by(config: Path) -> Access:
    client = client_of(KubernetesSettings(kubeconfig=str(config)))
    return Access(client=client, call_seconds=PATIENCE_SECONDS)


def write_user(config: Path, user: object) -> None:
    content = json.loads(config.read_text())
    content["users"][0]["user"] = user
    config.write_text(json.dumps(content))


async def lists_nodes(access: Access) -> bool:
    """Raises: Trouble."""

    async def found() -> list[Node]:
        return [one async for one in access.client.list(Node)]

    return await access.ask(found()) == []


def test_a_token_that_was_renewed_in_the_file_is_read(cluster: Cluster) -> None:
    config = cluster.user("renewed", ALL)
    first = json.loads(config.read_text())["users"][0]["user"]["token"]

    async def run() -> None:
        access = access_by(config)
        assert await lists_nodes(access)
        cluster.server.users["second"] = cluster.server.users.pop(first)
        with pytest.raises(Trouble, match="Unauthorized"):
            await lists_nodes(access)
        write_user(config, {"token": "second"})
        assert await lists_nodes(access)
        await access.client.close()

    asyncio.run(run())


def test_a_file_that_does_not_read_changes_nothing(cluster: Cluster) -> None:
    config = cluster.user("broken", ALL)
    token = json.loads(config.read_text())["users"][0]["user"]["token"]

    async def run() -> None:
        access = access_by(config)
        taken = cluster.server.users.pop(token)
        for text in ("{", "", "[]", json.dumps({"users": 3})):
            config.write_text(text)
            with pytest.raises(Trouble, match="Unauthorized"):
                await lists_nodes(access)
        cluster.server.users[token] = taken
        assert await lists_nodes(access)
        await access.client.close()

    asyncio.run(run())


def test_a_login_program_that_fails_is_run_again(
    cluster: Cluster, tmp_path: Path
) -> None:
    """It is run again at each 401, and one failure must not end the watch."""
    said = json.dumps({**CREDENTIAL, "status": {"token": cluster.token}})
    program, works = tmp_path / "login", tmp_path / "works"
    program.write_text(f"#!/bin/sh\ntest -e {works} && echo '{said}' && exit\n"
                       "echo no token service >&2; exit 1\n")  # fmt: skip
    program.chmod(0o700)
    config = cluster.kubeconfig()
    write_user(
        config,
        {"exec": {"apiVersion": CREDENTIAL["apiVersion"], "command": str(program)}},
    )

    async def run() -> None:
        access = access_by(config)
        with pytest.raises(
            Trouble, match="cannot be used to log in: .* no token service"
        ):
            await lists_nodes(access)
        mirror: Mirror[Node] = Mirror(client=access.client, kind=Node)
        task = asyncio.create_task(mirror.run())
        async with asyncio.timeout(PATIENCE_SECONDS):
            await mirror.answered.wait()
            assert "no token service" in mirror.trouble
            works.touch()
            while mirror.trouble:
                await asyncio.sleep(0.01)
        assert (mirror.lists, task.done()) == (1, False)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await access.client.close()

    asyncio.run(run())


@pytest.mark.parametrize(
    "said", ["", "{}", "no JSON", '{"status": {}}', '{"status": null}']
)
def test_a_login_program_that_says_nothing_of_use_is_a_trouble(
    cluster: Cluster, tmp_path: Path, said: str
) -> None:
    program = tmp_path / "login"
    program.write_text(f"#!/bin/sh\necho '{said}'\n")
    program.chmod(0o700)
    config = cluster.kubeconfig()
    write_user(
        config,
        {"exec": {"apiVersion": CREDENTIAL["apiVersion"], "command": str(program)}},
    )

    async def run() -> None:
        access = access_by(config)
        with pytest.raises(Trouble, match="cannot be used to log in"):
            await lists_nodes(access)
        await access.client.close()

    asyncio.run(run())


def test_the_namespace_is_that_of_the_context(cluster: Cluster) -> None:
    assert access_by(cluster.kubeconfig()).client.namespace == NAMESPACE


def test_rights_that_are_missing_are_named(cluster: Cluster) -> None:
    rights = {
        "nodes": "list watch", "pods": "get list watch delete", "jobs": "get list watch create",
        "configmaps": "get create update", "events": "list", "persistentvolumeclaims": "get",
        "secrets": "get list watch create update delete",
    }  # fmt: skip

    def said(**more: str) -> str:
        rules = tuple(
            Rule(groups=("*",), resources=(name,), verbs=tuple(verbs.split()))
            for name, verbs in (rights | more).items()
        )

        async def ask() -> str:
            access = access_by(cluster.user("somebody", rules))
            try:
                return await missing_rights(access, NAMESPACE)
            finally:
                await access.client.close()

        return asyncio.run(ask())

    assert said(jobs="get list watch create delete") == ""
    assert said(events="get", nodes="list") == (
        "the account of the head may not delete jobs, list events in namespace "
        f"{NAMESPACE} nor watch nodes in the whole cluster; apply "
        "deploy/kubernetes/roles.yaml to grant this"
    )
