"""Text about the GPUs of a running job that sleeping replicas lend to it."""

from corral.domain.ids import JobId
from corral.domain.lending import Borrow
from corral.domain.service import Service
from corral.domain.units import MILLIS_PER_GPU, counted_gpus
from corral.domain.world import World


def lent_text(world: World, job: JobId) -> str:
    """Return how many GPUs a job borrows, from which services, and within what time
    each must be able to use them again; "" if it borrows none."""
    texts = []
    for service in world.services.values():
        gpu_millis = sum(borrow.gpu_millis for borrow in _borrows(service, job))
        if not gpu_millis:
            continue
        within = service.spec.scale.back_within_seconds
        them = "it" if gpu_millis <= MILLIS_PER_GPU else "them"
        bound = "" if within is None else f", and must be ready within {within:g} s"
        texts.append(
            f"{counted_gpus(gpu_millis)} of service {service.name}, which stops this "
            f"job when it needs {them} back{bound}"
        )
    return f"it borrows {'; '.join(texts)}" if texts else ""


def _borrows(service: Service, job: JobId) -> list[Borrow]:
    return [
        borrow
        for row in service.replicas
        if row.sleep is not None
        for borrow in row.sleep.borrows
        if borrow.job == job
    ]
