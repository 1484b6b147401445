"""Access to NVIDIA's NVML library, for the discovery and for the sensors. Any call of
the library may hang."""

from collections.abc import Sequence


def driver_indices(chosen: tuple[int, ...] | None) -> Sequence[int]:
    """Open NVML, and return the existing GPU indices among `chosen`, or all for None;
    they are the driver's indices. Without a driver the result is empty.

    Raises: RuntimeError when there is a driver and it fails.
    """
    import pynvml  # type: ignore[import-untyped]  # it is large

    try:
        pynvml.nvmlInit()
    except (pynvml.NVMLError_LibraryNotFound, pynvml.NVMLError_DriverNotLoaded):
        return ()
    except pynvml.NVMLError as trouble:
        raise RuntimeError(f"NVML cannot be initialized: {trouble}") from trouble
    try:
        indices = range(pynvml.nvmlDeviceGetCount())
    except pynvml.NVMLError as trouble:
        raise RuntimeError(f"the NVIDIA driver (NVML) failed: {trouble}") from trouble
    return (
        indices if chosen is None else [index for index in chosen if index in indices]
    )


def text_of(name: str | bytes) -> str:
    """Return the name as text; older releases of the library return bytes."""
    return name.decode() if isinstance(name, bytes) else name
