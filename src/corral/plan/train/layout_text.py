"""Layouts as text, in standard terms."""

from collections.abc import Mapping

from corral.perf.layout import Recompute, Shard, TrainLayout


def words(layout: TrainLayout) -> str:
    """Return the sizes of a layout as text: TP 4 x PP 2 x DP 8. They multiply to the
    number of GPUs, except for EP, which spreads experts over GPUs that other dimensions
    already use."""
    sizes: Mapping[str, int] = {
        "TP": layout.tensor,
        "PP": layout.pipeline,
        "CP": layout.context,
        "EP": layout.expert,
        "DP": layout.data,
    }
    size_texts = [f"{name} {size}" for name, size in sizes.items() if size > 1]
    return " x ".join(size_texts) or "1 GPU"


def settings(layout: TrainLayout) -> str:
    """Return the settings of a layout as text, such as micro batch and recomputation."""
    setting_texts = [f"micro batch {layout.micro_batch}"]
    if layout.interleave > 1:
        setting_texts.append(f"{layout.interleave} pieces a stage")
    if layout.data * layout.context > 1:
        setting_texts.append(
            "FSDP (ZeRO-3)" if layout.shard is Shard.PARAMETERS else "ZeRO-1"
        )
    if layout.sequence_parallel:
        setting_texts.append("sequence parallel")
    if layout.recompute is Recompute.FULL:
        setting_texts.append("layers recomputed")
    return ", ".join(setting_texts)


def in_short(layout: TrainLayout) -> str:
    """Return a short text of a layout: its sizes, and the settings that change the
    memory of a GPU."""
    parts_text = [words(layout)]
    if layout.shard is Shard.PARAMETERS and layout.data * layout.context > 1:
        parts_text.append("FSDP (ZeRO-3)")
    if layout.recompute is Recompute.FULL:
        parts_text.append("layers recomputed")
    return ", ".join(parts_text)
