"""Refusal of pretended GPUs on a machine that has real ones, unless --pretend is given."""

from collections.abc import Sequence

from corral.domain.errors import SpecInvalid


def check_has_no_gpu(gpus: int, makers: Sequence[str]) -> None:
    """Refuse to pretend GPUs on a machine with real ones. Raises: SpecInvalid if the
    machine has GPUs that the local engine cannot use."""
    if makers:
        raise SpecInvalid(
            f"--gpus {gpus}: this machine has a GPU of {' and of '.join(makers)}, and the local "
            "engine reads none of it: the NVIDIA driver does not answer",
            hint="see: nvidia-smi, corral doctor; or add --pretend: then no real GPU is used",
        )
