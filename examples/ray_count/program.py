"""Counts primes on every node of a Ray cluster, on one CPU each."""

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy


@ray.remote(num_cpus=1)
def primes(low: int, high: int) -> int:
    return sum(
        all(n % d for d in range(2, int(n**0.5) + 1)) for n in range(max(2, low), high)
    )


ray.init(log_to_driver=False)  # RAY_ADDRESS says where
nodes = [node for node in ray.nodes() if node["Alive"]]
each = 20_000 // len(nodes)
counts = []
for place, node in enumerate(nodes):
    there = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
    asked = primes.options(scheduling_strategy=there)
    counts.append(asked.remote(place * each, (place + 1) * each))
for node, count in zip(nodes, ray.get(counts), strict=True):
    print(f"{node['NodeName']}: {count} primes", flush=True)
print(f"{sum(ray.get(counts))} primes below {each * len(nodes)}", flush=True)
