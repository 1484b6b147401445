"""Models of attempts, and the adapters of replicas: they are on the node before the ranks
start, which get their paths in CORRAL_MODEL, CORRAL_ADAPTER_1, and so on."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from corral.agent.content_cache.choose_source import parse_source, source_env
from corral.agent.content_cache.keeper import ContentKeeper
from corral.agent.content_cache.refusals import ContentRefused
from corral.agent.content_cache.source import ContentRequest
from corral.agent.fetch_inputs import NotStarted
from corral.agent.job_account import JobAccount
from corral.agent.outputs.work_record import MODEL
from corral.domain.desired_state import Launch
from corral.domain.errors import CorralError
from corral.wire.model_source import MODEL_VARIABLE, adapter_variable

ADAPTERS: Final = ".adapters"


class LaunchModels:
    """Gives attempts their models. `secrets` may hold the token of the source."""

    def __init__(self, node_dir: Path, keeper: ContentKeeper) -> None:
        self._node_dir = node_dir
        self._keeper = keeper

    async def variables(
        self, launch: Launch, secrets: Mapping[str, str], account: JobAccount | None
    ) -> dict[str, str]:
        """Return the variables with the paths of the attempt's model and adapters, once
        these are there; empty for an attempt without a model.

        Raises: NotStarted.
        """
        if launch.model is None:
            return {}
        job, attempt = launch.key
        folder = self._node_dir / "attempts" / f"{job}.{attempt}" / MODEL
        env = source_env(dict(launch.env), secrets)
        paths = {}
        if parse_source(launch.model).kind.is_fetched:
            model = await self._fetch("model", launch.model, folder, launch, env)
            paths[MODEL_VARIABLE] = str(model)
        else:
            paths[MODEL_VARIABLE] = _expanded(launch.model, account)
        adapters = launch.replica.adapters if launch.replica is not None else ()
        # inside the model's folder, which is replaced as a whole before
        for number, source in enumerate(adapters, 1):
            place = folder / ADAPTERS / str(number)
            adapter = await self._fetch("adapter", source, place, launch, env)
            paths[adapter_variable(number)] = str(adapter)
        return paths

    async def _fetch(
        self,
        what: str,
        source: str,
        folder: Path,
        launch: Launch,
        env: Mapping[str, str],
    ) -> Path:
        """Return the path of content in the attempt's folder. Raises: NotStarted."""
        try:
            request = ContentRequest(source=source, user=launch.owner, env=env)
            return await self._keeper.give(request, folder, launch.key)
        except ContentRefused as refused:
            reason = f"the {what} cannot be fetched: {refused.message}"
            raise NotStarted(reason, infra=False) from refused
        except CorralError as trouble:
            hint = f"; {trouble.hint}" if trouble.hint else ""
            reason = f"the {what} cannot be fetched: {trouble.message}{hint}"
            raise NotStarted(reason, infra=True) from trouble
        except OSError as trouble:
            reason = f"the {what} cannot be put into the attempt's folder: {trouble}"
            raise NotStarted(reason, infra=True) from trouble


def _expanded(path: str, account: JobAccount | None) -> str:
    """Return a path of the node with the home folder of the attempt's account."""
    if account is not None and path.startswith("~/"):
        return f"{account.home}/{path.removeprefix('~/')}"
    return os.path.expanduser(path)
