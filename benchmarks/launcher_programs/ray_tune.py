"""Four trials of Ray Tune on all nodes of a Ray program."""

import os

import ray
from ray import tune


def trial(config: dict[str, int]) -> None:
    rank = config["rank"]
    print(
        f"WORLD rank={rank} size=4 sum=4 node={os.uname().nodename} gpus=", flush=True
    )
    tune.report({"score": rank})


ray.init()
tune.Tuner(trial, param_space={"rank": tune.grid_search([0, 1, 2, 3])}).fit()
