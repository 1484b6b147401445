"""Models of attempts: each is on the node before the ranks start, which get its path in
CORRAL_MODEL."""

import os
from collections.abc import Mapping
from pathlib import Path

from corral.agent.content_cache.choose_source import parse_source, source_env
from corral.agent.content_cache.keeper import ContentKeeper
from corral.agent.content_cache.refusals import ContentRefused
from corral.agent.content_cache.source import ContentRequest
from corral.agent.fetch_inputs import NotStarted
from corral.agent.job_account import JobAccount
from corral.agent.outputs.work_record import MODEL
from corral.domain.desired_state import Launch
from corral.domain.errors import CorralError
from corral.wire.model_source import MODEL_VARIABLE


class LaunchModels:
    """Gives attempts their models. `secrets` may hold the token of the source."""

    def __init__(self, node_dir: Path, keeper: ContentKeeper) -> None:
        self._node_dir = node_dir
        self._keeper = keeper

    async def variables(
        self, launch: Launch, secrets: Mapping[str, str], account: JobAccount | None
    ) -> dict[str, str]:
        """Return the variable with the path of the attempt's model, once the model is
        there; empty for an attempt without a model.

        Raises: NotStarted.
        """
        if launch.model is None:
            return {}
        job, attempt = launch.key
        folder = self._node_dir / "attempts" / f"{job}.{attempt}" / MODEL
        try:
            if not parse_source(launch.model).kind.is_fetched:
                return {MODEL_VARIABLE: _expanded(launch.model, account)}
            request = ContentRequest(
                source=launch.model,
                user=launch.owner,
                env=source_env(dict(launch.env), secrets),
            )
            path = await self._keeper.give(request, folder, launch.key)
        except ContentRefused as refused:
            reason = f"the model cannot be fetched: {refused.message}"
            raise NotStarted(reason, infra=False) from refused
        except CorralError as trouble:
            hint = f"; {trouble.hint}" if trouble.hint else ""
            reason = f"the model cannot be fetched: {trouble.message}{hint}"
            raise NotStarted(reason, infra=True) from trouble
        except OSError as trouble:
            reason = f"the model cannot be put into the attempt's folder: {trouble}"
            raise NotStarted(reason, infra=True) from trouble
        return {MODEL_VARIABLE: str(path)}


def _expanded(path: str, account: JobAccount | None) -> str:
    """Return a path of the node with the home folder of the attempt's account."""
    if account is not None and path.startswith("~/"):
        return f"{account.home}/{path.removeprefix('~/')}"
    return os.path.expanduser(path)
