"""What the driver says of an API server that nobody reaches."""

import asyncio
from typing import cast

import httpx2
import pytest
from lightkube import AsyncClient

from corral.domain.errors import Trouble
from corral.domain.ids import ClusterId
from corral.engines.kubernetes.api_server import Access
from corral.engines.kubernetes.driver import KubernetesDriver
from corral.engines.kubernetes.settings import KubernetesSettings
from tests.patience import NEVER_SECONDS


class Nobody:
    """A client whose every call is refused."""

    namespace = "default"

    async def create(self, *_: object) -> None:
        raise httpx2.ConnectError("connection refused")

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
        Trouble, match="the API server of Kubernetes: ConnectError: connection"
    ):
        asyncio.run(look())
