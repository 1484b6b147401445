"""Both clients apply, show and change services of a real head."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from corral import AsyncClient, Client
from corral.domain.errors import Conflict, NotFound, SpecInvalid
from tests.api.heads import TOKENS, Head, serving
from tests.services import DOCUMENT, service_of

IDLE = {**DOCUMENT, "replicas": "0..2"}


@pytest.fixture
def head(tmp_path: Path) -> Iterator[Head]:
    with serving(tmp_path / "head") as head:
        yield head


@pytest.fixture
def client(head: Head) -> Iterator[Client]:
    with Client(head.url, TOKENS["alice"]) as client:
        yield client


def test_a_service_from_its_document_to_its_end(head: Head, client: Client) -> None:
    assert client.services() == []
    planned = client.apply_services(IDLE, dry_run=True)
    assert [one.change for one in planned.services] == ["created"]
    assert not head.control.world.services
    (applied,) = client.apply_services([IDLE]).services
    assert (applied.name, applied.change, applied.revision) == ("chat", "created", 1)
    assert [one.name for one in client.services()] == ["chat"]
    assert client.scale_service("chat", "0..5").replicas == "0..5"
    with pytest.raises(Conflict, match="no earlier revision"):
        client.roll_back_service("chat")
    assert client.stop_service("chat").name == "chat"
    with pytest.raises(NotFound, match="caht"):
        client.service("caht")
    with pytest.raises(NotFound):
        client.service("a/b")
    assert client.access_token() == TOKENS["alice"]


def test_a_workdir_is_uploaded_and_a_dry_run_uploads_nothing(
    head: Head, client: Client, tmp_path: Path
) -> None:
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "server.py").write_text("print()")
    file = tmp_path / "chat.yaml"
    text = "\n".join(f"{key}: {value}" for key, value in IDLE.items())
    file.write_text(f"{text}\nworkdir: code\n")
    (planned,) = client.apply_services(file, dry_run=True).services
    assert planned.change == "created"
    assert not list((tmp_path / "head" / "snapshots").glob("*"))
    client.apply_services(file)
    digest = service_of(head).spec.replica.workdir
    assert digest is not None
    assert [path.name for path in (tmp_path / "head" / "snapshots").iterdir()] != []
    (again,) = client.apply_services(file, dry_run=True).services
    assert again.change == "unchanged"
    (folder / "server.py").write_text("print(2)")
    (changed,) = client.apply_services(file, dry_run=True).services
    assert changed.change == "revision"
    file.write_text(f"{text}\nworkdir: absent\n")
    with pytest.raises(SpecInvalid, match="chat.yaml"):
        client.apply_services(file)


def test_asyncio_can_do_the_same(head: Head) -> None:
    async def all_of_it() -> None:
        async with AsyncClient(head.url, TOKENS["alice"]) as client:
            (applied,) = (await client.apply_services(IDLE)).services
            assert applied.change == "created"
            assert (await client.service("chat")).replicas == "0..2"
            assert (await client.scale_service("chat", 0)).replicas == "0"
            with pytest.raises(Conflict):
                await client.roll_back_service("chat")
            assert (await client.stop_service("chat")).name == "chat"
            assert client.access_token() == TOKENS["alice"]
            assert await client.services(everything=True)

    asyncio.run(all_of_it())
