"""Refuses to pretend GPUs, unasked, on a machine that has some."""

from collections.abc import Sequence

from corral.domain.errors import SpecInvalid


def check_has_no_gpu(gpus: int, makers: Sequence[str]) -> None:
    """Raises: SpecInvalid where the machine has GPUs that cannot be used."""
    if makers:
        raise SpecInvalid(
            f"--gpus {gpus}: this machine has a GPU of {' and of '.join(makers)}, and the local "
            "engine reads none of it: the NVIDIA driver does not answer",
            hint="see: nvidia-smi, corral doctor; or add --pretend: then no real GPU is used",
        )
