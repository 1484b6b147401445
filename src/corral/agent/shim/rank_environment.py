"""Environment of a process of an attempt."""

from collections.abc import Mapping

from corral.agent.job_account import JobAccount
from corral.agent.shim.file_names import SOCKET
from corral.agent.shim.filesystem_view import Inside
from corral.agent.watching.hook_file import with_hook
from corral.wire.shim_spec import ShimSpec


def rank_environment(
    spec: ShimSpec,
    rank_variables: Mapping[str, str],
    *,
    hook_folder: str | None,
    account: JobAccount | None,
    inside: Inside,
) -> dict[str, str]:
    """Return all variables of a process. `hook_folder`: the folder of the file that
    counts steps, None without one."""
    env = {
        **spec.env,
        **rank_variables,
        "CORRAL_SOCKET": f"{spec.folder}/{SOCKET}",
    }
    if hook_folder is not None:
        env = with_hook(env, hook_folder)
    of_account = account.env if account is not None else {}
    return inside.env({**env, **of_account}, spec.work)
