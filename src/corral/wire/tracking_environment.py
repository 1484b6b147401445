"""The environment variables with which experiment trackers (Weights & Biases, MLflow,
TensorBoard) record all attempts of a job as one run."""

import json
from typing import Final

from corral.domain.desired_state import Launch
from corral.domain.store_url import is_store_url

# a job that sets one of them chooses its runs itself
_CHOOSES_WANDB_RUN: Final = ("WANDB_RUN_ID", "WANDB_RESUME", "WANDB_SWEEP_ID")


def tracking_of_attempt(launch: Launch) -> dict[str, str]:
    """Return the variables that all ranks share; empty for a job without a tracking id.
    Variables of the job itself take precedence. With a checkpoint path on a file system
    there is a folder that all attempts share."""
    if not launch.tracking_id:
        return {}
    own_variables = dict(launch.env)
    variables = {"CORRAL_TRACKING_ID": launch.tracking_id}
    path = "" if launch.checkpoint is None else launch.checkpoint.path
    if path and not is_store_url(path):
        folder = f"{path}/tracking/{launch.tracking_id}"
        variables |= {
            "CORRAL_TRACKING_DIR": folder,
            "CORRAL_TENSORBOARD_DIR": f"{folder}/tensorboard",
            # the trainer of transformers writes there
            "TENSORBOARD_LOGGING_DIR": f"{folder}/tensorboard",
            "WANDB_DIR": folder,
        }
    variables["MLFLOW_RUN_CONTEXT"] = _mlflow_tags(launch)
    if _has_wandb_run(launch):
        variables |= {"WANDB_RUN_ID": launch.tracking_id, "WANDB_RESUME": "allow"}
    return {
        name: value for name, value in variables.items() if name not in own_variables
    }


def tracking_of_rank(launch: Launch, rank: int) -> dict[str, str]:
    """Return the variables of one rank alone. Where every rank begins a run, each rank
    has its own; two processes cannot write the same run."""
    if rank == 0 or not launch.tracking_id or not _has_wandb_run(launch):
        return {}
    return {"WANDB_RUN_ID": f"{launch.tracking_id}-{rank}"}


def _has_wandb_run(launch: Launch) -> bool:
    return not any(name in _CHOOSES_WANDB_RUN for name, _ in launch.env)


def _mlflow_tags(launch: Launch) -> str:
    """Return the tags that MLflow adds to each run that it creates."""
    job, attempt = launch.key
    tags = {
        "corral.job": job,
        "corral.job_name": launch.job_name,
        "corral.attempt": str(attempt),
        "corral.tracking_id": launch.tracking_id,
    }
    return json.dumps(tags, sort_keys=True)
