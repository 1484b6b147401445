"""What the driver says of an API server that nobody reaches."""

import asyncio
from typing import cast

import httpx2
import pytest
from lightkube import ApiError, AsyncClient
from lightkube.models.meta_v1 import ObjectMeta, Status
from lightkube.resources.batch_v1 import Job

from corral.domain.errors import Trouble
from corral.domain.ids import ClusterId
from corral.engines.kubernetes.api_server import Access, NotTaken
from corral.engines.kubernetes.driver import KubernetesDriver
from corral.engines.kubernetes.settings import KubernetesSettings
from tests.patience import NEVER_SECONDS


class Nobody:
    """A client whose every call is refused."""

    namespace = "default"
    wrong: Exception = httpx2.ConnectError("connection refused")

    async def create(self, *_: object, **which: object) -> None:
        raise self.wrong

    def list(self, *_: object, **which: object) -> None:
        raise httpx2.ConnectError("connection refused")


def test_why_nobody_answers_is_told_without_waiting_for_an_answer() -> None:
    driver = KubernetesDriver(
        named=lambda: ClusterId("0123456789abcdef"),
        settings=KubernetesSettings(),
        access=Access(client=cast(AsyncClient, Nobody()), call_seconds=NEVER_SECONDS),
        head=dict,
    )

    async def look() -> None:
        try:
            await driver.look()
        finally:
            for task in driver._tasks:
                task.cancel()

    with pytest.raises(
        Trouble, match="API server cannot be reached: ConnectError: connection"
    ) as trouble:
        asyncio.run(look())
    assert trouble.value.is_silence


def test_an_object_that_is_rejected_is_named() -> None:
    client = Nobody()
    status = Status(code=422, message="spec.template: field is immutable")
    client.wrong = ApiError(status=status)
    access = Access(client=cast(AsyncClient, client), call_seconds=NEVER_SECONDS)
    job = Job(metadata=ObjectMeta(name="corral-j1-1"))
    with pytest.raises(NotTaken, match=r"rejected the Job corral-j1-1: spec\.template"):
        asyncio.run(access.create(job, namespace="default"))
