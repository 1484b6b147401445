"""Layouts in the words of the field."""

from collections.abc import Mapping

from corral.perf.layout import Recompute, Shard, TrainLayout


def words(layout: TrainLayout) -> str:
    """Return the sizes of a layout: TP 4 x PP 2 x DP 8. Except for EP, which spreads experts over
    GPUs that others already use, they multiply to the number of GPUs."""
    sizes: Mapping[str, int] = {
        "TP": layout.tensor,
        "PP": layout.pipeline,
        "CP": layout.context,
        "EP": layout.expert,
        "DP": layout.data,
    }
    told = [f"{name} {size}" for name, size in sizes.items() if size > 1]
    return " x ".join(told) or "1 GPU"


def settings(layout: TrainLayout) -> str:
    """Return the settings of a layout besides its sizes."""
    told = [f"micro batch {layout.micro_batch}"]
    if layout.interleave > 1:
        told.append(f"{layout.interleave} pieces a stage")
    if layout.data * layout.context > 1:
        told.append("FSDP (ZeRO-3)" if layout.shard is Shard.PARAMETERS else "ZeRO-1")
    if layout.sequence_parallel:
        told.append("sequence parallel")
    if layout.recompute is Recompute.FULL:
        told.append("layers recomputed")
    return ", ".join(told)


def in_short(layout: TrainLayout) -> str:
    """Its sizes, and what of its settings changes what a GPU holds."""
    told = [words(layout)]
    if layout.shard is Shard.PARAMETERS and layout.data * layout.context > 1:
        told.append("FSDP (ZeRO-3)")
    if layout.recompute is Recompute.FULL:
        told.append("layers recomputed")
    return ", ".join(told)
