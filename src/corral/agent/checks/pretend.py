"""Simulated check results of pretend GPUs and their links: a seeded model, with faults.

`pretend.json` in the node's folder sets faults under "checks". For example,
{"matmul/2": "wrong"} gives a wrong product on GPU 2. A number is a factor for the
measured value ({"memory/1": 0.4, "disk": 0.1}). For the clock, the number is its offset
in seconds. "seconds" sets the duration of each GPU's check.
"""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import msgspec

from corral.agent.checks.messages import BYTES_PER_SECOND, CheckFinding, CheckRequest
from corral.agent.checks.rates import rate_text
from corral.agent.telemetry.pretend import chance
from corral.agent.telemetry.sources import FAULTS, faults
from corral.catalog.check_bounds import rated
from corral.domain.active_checks import CheckKind
from corral.domain.resources import Gpu

_UNKNOWN_RATE = 1e12  # of a GPU that the catalog does not know, in bytes/s


@dataclass(frozen=True, slots=True)
class Injected:
    faults: Mapping[str, Any]

    @classmethod
    def of(cls, node_dir: Path) -> Self:
        return cls(faults(node_dir / FAULTS).get("checks", {}))

    def of_check(self, kind: CheckKind, place: int | str | None) -> Any:
        return self.faults.get(f"{kind}/{place}", self.faults.get(kind))

    def changed(self, found: CheckFinding) -> CheckFinding:
        """Return the finding with the fault that is configured for its check, if any."""
        device_id = found.gpu if found.gpu is not None else found.device
        fault = self.of_check(found.kind, device_id)
        if fault is None or found.failed is not None or isinstance(fault, str):
            return found
        if found.kind == CheckKind.CLOCK:
            side = "ahead of" if fault > 0 else "behind"
            text = f"the node's clock is {abs(fault):g} s {side} the head's clock"
            return msgspec.structs.replace(
                found, value=float(fault), text=text, ran=True
            )
        if found.value is None:
            return found
        value = found.value * float(fault)
        text = f"{rate_text(value)} (pretend)"
        return msgspec.structs.replace(found, value=value, text=text)


def pretended(ask: CheckRequest, injected: Injected) -> Iterator[CheckFinding]:
    """Yield the simulated results of the node's GPUs and of its link to another
    node."""
    kinds = ask.checkup.kinds
    for gpu in ask.gpus:
        time.sleep(float(injected.faults.get("seconds", 0.0)))
        if CheckKind.MATMUL in kinds:
            yield _matmul_finding(gpu, injected)
        if CheckKind.MEMORY in kinds:
            yield _rate_finding(
                CheckKind.MEMORY, gpu, "memory copies run at", gpu=gpu.index
            )
    if not ask.gpus and CheckKind.MATMUL in kinds:
        from corral.agent.checks.gpus import check_gpus

        yield from check_gpus(ask)
    if CheckKind.ALL_REDUCE in kinds and len(ask.gpus) > 1:
        yield _rate_finding(
            CheckKind.ALL_REDUCE, ask.gpus[0], f"all-reduce over {len(ask.gpus)} GPUs:"
        )
    if CheckKind.LINK in kinds:
        peer = ask.checkup.peer
        link_gpu = (
            ask.gpus[0]
            if ask.gpus
            else Gpu(index=0, uuid=ask.node, type="", memory_bytes=0)
        )
        yield _rate_finding(
            CheckKind.LINK, link_gpu, f"link with node {peer}:", device=peer
        )


def _matmul_finding(gpu: Gpu, injected: Injected) -> CheckFinding:
    is_wrong = injected.of_check(CheckKind.MATMUL, gpu.index) == "wrong"
    text = (
        f"GPU {gpu.index}: 1 of 100 matrix products is wrong"
        if is_wrong
        else f"GPU {gpu.index}: all 100 matrix products are correct"
    )
    return CheckFinding(
        kind=CheckKind.MATMUL, gpu=gpu.index, text=f"{text} (pretend)", failed=is_wrong
    )


def _rate_finding(kind: CheckKind, of: Gpu, says: str, **more: Any) -> CheckFinding:
    rated_bandwidth = rated(kind, of.type) or _UNKNOWN_RATE
    value = rated_bandwidth * (0.84 + 0.08 * chance(of.uuid, kind))
    text = f"{says} {rate_text(value)} (pretend)"
    return CheckFinding(
        kind=kind, text=text, value=value, unit=BYTES_PER_SECOND, **more
    )
