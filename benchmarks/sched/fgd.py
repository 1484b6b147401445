"""What placements are measured against: at random, best fit, and FGD as it was published.

FGD: Weng et al., "Beware of Fragmentation", USENIX ATC'23, section 4 and its artifact
(hkust-adsl/kubernetes-scheduler-simulator): of the nodes that hold a pod, that with the highest
int(100 * sigmoid((F(before) - F(after)) / 1000)), F in thousandths of a GPU summed over the typical
pods (the most frequent ones that make up 95 % of the WHOLE trace, seen beforehand); a share's GPU
likewise; the first node of equals. Best fit: least of half the free CPU over 128 cores and half the
free GPUs over 8. All hold a pod to CPU, memory, type and GPUs alike.
"""

from collections import Counter
from collections.abc import Sequence
from math import exp
from typing import Any

import numpy as np
from numba import njit
from openb import Machine, Pod

RANDOM, BEST_FIT, FGD = 0, 1, 2
WIDE = 8


class Baseline:
    """Shapes are the distinct pods of a trace; the state of nodes begins anew at each `run`."""

    def __init__(self, nodes: Sequence[Machine], trace: Sequence[Pod]) -> None:
        types = sorted({node.type for node in nodes if node.gpus})
        counts = Counter(trace)
        self._number = {pod: at for at, pod in enumerate(counts)}
        self._shapes = np.array([self._row(pod, types) for pod in counts])
        self._nodes = np.array(
            [
                (
                    n.gpus,
                    n.cpu_millis,
                    n.memory_mib,
                    1 << types.index(n.type) if n.gpus else 0,
                )
                for n in nodes
            ]
        )
        usual, kept = [], 0
        for pod, count in counts.most_common():
            if kept >= 0.95 * len(trace):
                break
            usual.append((self._number[pod], count))
            kept += count
        self._typical = np.array([number for number, _ in usual])
        self._weights = np.array([count / kept for _, count in usual])

    @staticmethod
    def _row(pod: Pod, types: list[str]) -> tuple[int, int, int, int, int]:
        """Thousandths a GPU, GPUs, CPU, memory, the types it may use as bits."""
        each, gpus = (
            (1000, pod.millis // 1000) if pod.millis >= 1000 else (pod.millis, 1)
        )
        request = sum(1 << types.index(kind) for kind in pod.types if kind in types)
        return (
            each,
            gpus if pod.millis else 0,
            pod.cpu_millis,
            pod.memory_mib,
            request or -1,
        )

    def run(self, policy: int, line: Sequence[Pod], seed: int) -> float:
        """The GPUs allocated at the end, as a part of all."""
        numbers = np.array([self._number[pod] for pod in line])
        got = _run(
            numbers,
            self._shapes,
            self._nodes,
            policy,
            self._typical,
            self._weights,
            seed,
        )
        return float(got / (self._nodes[:, 0].sum() * 1000))


@njit(cache=True)
def _holds(shape: Any, node: Any, gpu: Any) -> bool:
    if node[1] < shape[2] or node[2] < shape[3]:
        return False
    if shape[1] and not shape[4] & node[3]:
        return False
    able = 0
    for at in range(node[0]):
        able += gpu[at] >= shape[0]
    return bool(able >= shape[1])


@njit(cache=True)
def _fragment(
    cpu: int, memory: int, node: Any, gpu: Any, shapes: Any, typical: Any, p: Any
) -> float:
    free = 0
    for at in range(node[0]):
        free += gpu[at]
    lost = 0.0
    for at in range(len(typical)):
        shape, able, small = shapes[typical[at]], 0, 0
        for index in range(node[0]):
            if gpu[index] >= shape[0]:
                able += 1
            else:
                small += gpu[index]
        holds = cpu >= shape[2] and shape[4] & node[3] and able >= shape[1] > 0
        lost += p[at] * (small if holds else free)
    return lost


@njit(cache=True)
def _put(shape: Any, gpu: Any, only: int) -> None:
    left = shape[1]
    for at in range(WIDE):
        if left and gpu[at] >= shape[0] and (only < 0 or only == at):
            gpu[at] -= shape[0]
            left -= 1


@njit(cache=True)
def _fgd(
    shape: Any, node: Any, gpu: Any, shapes: Any, typical: Any, p: Any
) -> tuple[int, int]:
    """The score and, for a share, its GPU."""
    before = _fragment(node[1], node[2], node, gpu, shapes, typical, p)
    best, chosen = -1, -1
    share = shape[1] == 1 and shape[0] < 1000
    for at in range(node[0] if share else 1):
        if share and (gpu[at] < shape[0] or (at and gpu[at] == gpu[at - 1])):
            continue
        then = gpu.copy()
        _put(shape, then, at if share else -1)
        cpu, memory = node[1] - shape[2], node[2] - shape[3]
        after = _fragment(cpu, memory, node, then, shapes, typical, p)
        score = int(100 / (1 + exp((after - before) / 1000)))
        if score > best:
            best, chosen = score, at if share else -1
    return best, chosen


@njit(cache=True)
def _best_fit(shape: Any, node: Any, gpu: Any) -> tuple[float, int]:
    free, tightest = 0, -1
    for at in range(node[0]):
        free += gpu[at]
        if gpu[at] >= shape[0] and (tightest < 0 or gpu[at] < gpu[tightest]):
            tightest = at
    left = (node[1] - shape[2]) / 128_000 + (free - shape[0] * shape[1]) / 8000
    return -left / 2, tightest if shape[1] == 1 else -1


@njit(cache=True)
def _run(
    line: Any, shapes: Any, machines: Any, policy: int, typical: Any, p: Any, seed: int
) -> int:
    np.random.seed(seed)
    nodes, gpus = machines.copy(), np.zeros((len(machines), WIDE), np.int64)
    for n in range(len(nodes)):
        gpus[n, : nodes[n, 0]] = 1000
    version, stamp = (
        np.ones(len(nodes), np.int64),
        np.zeros((len(shapes), len(nodes)), np.int64),
    )
    score, choice = (
        np.zeros((len(shapes), len(nodes))),
        np.full((len(shapes), len(nodes)), -1),
    )
    allocated = 0
    for number in line:
        shape, best, most = shapes[number], -1, -1e300
        for n in range(len(nodes)):
            if not _holds(shape, nodes[n], gpus[n]):
                continue
            if policy == RANDOM:
                score[number, n] = np.random.random()
                choice[number, n] = _best_fit(shape, nodes[n], gpus[n])[1]
            elif stamp[number, n] != version[n]:
                stamp[number, n] = version[n]
                if policy == BEST_FIT:
                    score[number, n], choice[number, n] = _best_fit(
                        shape, nodes[n], gpus[n]
                    )
                else:
                    got = _fgd(shape, nodes[n], gpus[n], shapes, typical, p)
                    score[number, n], choice[number, n] = got
            if score[number, n] > most:
                best, most = n, score[number, n]
        if best >= 0:
            _put(shape, gpus[best], choice[number, best])
            nodes[best, 1] -= shape[2]
            nodes[best, 2] -= shape[3]
            version[best] += 1
            allocated += shape[0] * shape[1]
    return allocated
