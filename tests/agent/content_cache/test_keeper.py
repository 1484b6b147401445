"""The content of one node for several attempts at once."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from corral.agent.content_cache.keeper import ContentKeeper
from corral.agent.content_cache.launch_models import LaunchModels
from corral.agent.content_cache.source import ContentRequest
from corral.agent.content_cache.store import ContentStore
from corral.agent.fetch_inputs import NotStarted
from corral.domain.desired_state import ReplicaLaunch
from corral.domain.ids import AttemptNumber, JobId, ServiceName
from corral.wire.content_messages import ContentNow, ContentPeers
from tests.agent.content_cache.hf_server import HfServer, hf_server, model_files
from tests.agent.nodes import launch_of
from tests.patience import PATIENCE_SECONDS


@pytest.fixture
def hf() -> Iterator[HfServer]:
    with hf_server(model_files()) as server:
        yield server


@asynccontextmanager
async def keeper_in(node_dir: Path) -> AsyncIterator[ContentKeeper]:
    store = ContentStore(node_dir / "content")
    keeper = ContentKeeper(store, lambda key: ContentPeers())
    try:
        yield keeper
    finally:
        await keeper.close()


def request_of(hf: HfServer) -> ContentRequest:
    return ContentRequest(source=hf.source, user="ann", env={"HF_ENDPOINT": hf.url})


async def given(keeper: ContentKeeper, hf: HfServer, folder: Path, number: int) -> Path:
    key = (JobId(f"j{number}"), AttemptNumber(1))
    return await keeper.give(request_of(hf), folder / f"model{number}", key)


async def until(met: object) -> None:
    assert callable(met)
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not met():
            await asyncio.sleep(0.005)


async def test_attempts_that_start_together_share_one_fetch(
    hf: HfServer, tmp_path: Path
) -> None:
    async with keeper_in(tmp_path) as keeper:
        folders = await asyncio.gather(
            *(given(keeper, hf, tmp_path, number) for number in range(4))
        )
        for folder in folders:
            assert (folder / "config.json").read_bytes() == hf.files["config.json"]
        assert hf.sent == {path: len(content) for path, content in hf.files.items()}
        (item,) = keeper.report().items
        assert item.is_used
        assert item.sources == (hf.source,)


async def test_a_fetch_ends_with_the_last_attempt_that_waits_for_it(
    hf: HfServer, tmp_path: Path
) -> None:
    async with keeper_in(tmp_path) as keeper:
        hf.held.update(("model-1.safetensors", "model-2.safetensors"))
        starts = [
            asyncio.create_task(given(keeper, hf, tmp_path, number))
            for number in (1, 2)
        ]
        # the first half of each file is on the disk, but for what is buffered
        await until(
            lambda: any(
                fetch.total_bytes and fetch.done_bytes > 0.4 * fetch.total_bytes
                for fetch in keeper.report().fetches
            )
        )
        (fetch,) = keeper.report().fetches
        assert {job for job, _ in fetch.attempts} == {"j1", "j2"}
        starts[0].cancel()
        await asyncio.wait([starts[0]])
        (fetch,) = keeper.report().fetches
        assert {job for job, _ in fetch.attempts} == {"j2"}
        starts[1].cancel()
        hf.go_on.set()
        await until(lambda: not keeper.report().fetches)
        assert not keeper.report().items
        # what waits from now on begins anew, and goes on with what is there
        await given(keeper, hf, tmp_path, 3)
        # what was under way at the end is sent again, and no more
        assert hf.sent["model-2.safetensors"] < 2 * 1_200_000


async def test_the_results_of_requests_are_reported(
    hf: HfServer, tmp_path: Path
) -> None:
    async with keeper_in(tmp_path) as keeper:
        env = {"HF_ENDPOINT": hf.url}

        async def done(action: str, source: str) -> str:
            request = ContentNow(
                request=f"{action} {source}",
                action=action,  # type: ignore[arg-type]
                source=source,
                user="ann",
                env=env,
                is_pinned=True,
            )
            keeper.request(request)

            def troubles() -> list[str]:
                results = keeper.report().results
                return [
                    one.trouble for one in results if one.request == request.request
                ]

            await until(troubles)
            return troubles()[0]

        assert "does not have hf://org/none@main" in await done("pull", "hf://org/none")
        assert await done("pull", hf.source) == ""
        assert keeper.report().items[0].is_pinned
        assert await done("unpin", hf.source) == ""
        assert not keeper.report().items[0].is_pinned
        assert await done("remove", hf.source) == ""
        assert not keeper.report().items


async def test_content_in_use_is_not_removed(hf: HfServer, tmp_path: Path) -> None:
    async with keeper_in(tmp_path) as keeper:
        folder = await given(keeper, hf, tmp_path, 1)
        keeper.request(ContentNow(request="r", action="remove", source=hf.source))
        await until(lambda: keeper.report().results)
        assert "in use" in keeper.report().results[0].trouble
        assert (folder / "config.json").exists()


async def test_an_attempt_is_refused_by_the_job_or_by_the_cluster(
    hf: HfServer, tmp_path: Path
) -> None:
    async with keeper_in(tmp_path) as keeper:
        models = LaunchModels(tmp_path, keeper)

        async def refusal(source: str, **env: str) -> NotStarted:
            launch = launch_of("true", model=source, env=tuple(env.items()))
            with pytest.raises(NotStarted) as caught:
                await models.variables(launch, {}, None)
            return caught.value

        missing = await refusal("hf://org/none", HF_ENDPOINT=hf.url)
        assert (missing.infra, "hf://org/none" in missing.message) == (False, True)
        hf.is_down = True
        away = await refusal(hf.source, HF_ENDPOINT=hf.url)
        assert (away.infra, "HTTP 503" in away.message) == (True, True)


async def test_a_replica_gets_the_paths_of_its_adapters_beside_its_model(
    hf: HfServer, tmp_path: Path
) -> None:
    async with keeper_in(tmp_path) as keeper:
        models = LaunchModels(tmp_path, keeper)

        async def given(model: str, *adapters: str) -> dict[str, str]:
            replica = ReplicaLaunch(
                service=ServiceName("chat"),
                revision=1,
                number=1,
                probe="/health",
                key="k",
                adapters=adapters,
            )
            env = (("HF_ENDPOINT", hf.url),)
            launch = launch_of("true", model=model, env=env, replica=replica)
            return await models.variables(launch, {}, None)

        for model in ("/data/m", hf.source):
            paths = await given(model, hf.source, hf.source)
            assert sorted(paths) == [
                "CORRAL_ADAPTER_1",
                "CORRAL_ADAPTER_2",
                "CORRAL_MODEL",
            ]
            folders = {paths["CORRAL_ADAPTER_1"], paths["CORRAL_ADAPTER_2"]}
            assert len(folders) == 2
            assert all((Path(path) / "config.json").exists() for path in folders)
        assert (Path(paths["CORRAL_MODEL"]) / "config.json").exists()
        with pytest.raises(NotStarted, match="the adapter cannot be fetched"):
            await given("/data/m", "hf://org/none")


async def test_a_path_is_given_as_it_is_and_secrets_open_the_source(
    tmp_path: Path,
) -> None:
    async with keeper_in(tmp_path) as keeper:
        models = LaunchModels(tmp_path, keeper)
        path = await models.variables(launch_of("true", model="/data/m"), {}, None)
        assert path == {"CORRAL_MODEL": "/data/m"}
        assert await models.variables(launch_of("true"), {}, None) == {}
        with hf_server(model_files(), token="hf_ann", is_private=True) as hf:
            launch = launch_of(
                "true", model=hf.source, env=(("HF_ENDPOINT", hf.url),), owner="ann"
            )
            given = await models.variables(launch, {"HF_TOKEN": "hf_ann"}, None)
            assert (Path(given["CORRAL_MODEL"]) / "config.json").exists()
