"""NVIDIA's library is opened here, for the survey and for the sensors. Any call of it
may hang."""

from collections.abc import Sequence


def driver_indices(chosen: tuple[int, ...] | None) -> Sequence[int]:
    """Open NVML: the GPUs that are there with a `chosen` index of the driver's; None:
    all of them.

    Without a driver there are none. Raises: RuntimeError when there is one and it
    fails.
    """
    import pynvml  # type: ignore[import-untyped]  # it is large

    try:
        pynvml.nvmlInit()
    except (pynvml.NVMLError_LibraryNotFound, pynvml.NVMLError_DriverNotLoaded):
        return ()
    except pynvml.NVMLError as trouble:
        raise RuntimeError(f"NVML does not start: {trouble}") from trouble
    try:
        indices = range(pynvml.nvmlDeviceGetCount())
    except pynvml.NVMLError as trouble:
        raise RuntimeError(f"NVML fails: {trouble}") from trouble
    return (
        indices if chosen is None else [index for index in chosen if index in indices]
    )


def text_of(name: str | bytes) -> str:
    """Older releases of the library answer with bytes."""
    return name.decode() if isinstance(name, bytes) else name
