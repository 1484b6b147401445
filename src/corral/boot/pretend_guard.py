"""Refusal of pretended GPUs on a machine that has real ones, unless --pretend is given."""

from collections.abc import Sequence

from corral.domain.errors import SpecInvalid


def check_has_no_gpu(gpus: int, makers: Sequence[str]) -> None:
    """Refuse to pretend GPUs on a machine with real ones. Raises: SpecInvalid if the
    machine has GPUs that the local engine cannot use."""
    if makers:
        raise SpecInvalid(
            f"--gpus {gpus}: this machine has a GPU of {' and of '.join(makers)}, but "
            "the local engine cannot use it: the NVIDIA driver does not answer",
            hint="run: nvidia-smi, corral doctor; or add --pretend to use pretend GPUs",
        )
