"""Labels of nodes in the form in which users write them, zone=a and zone-, and in the
form in which they are stored."""

from collections.abc import Iterable, Mapping

from corral.domain.errors import SpecInvalid
from corral.domain.placement_constraints import NODE_LABEL, label_text
from corral.wire.time_and_place import LABEL

_EXAMPLE = "run: corral node label n1 zone=a, or zone- to remove the label"


def set_labels(labels: Mapping[str, str | None]) -> tuple[tuple[str, str | None], ...]:
    """Check the labels, and return them sorted by name.

    Raises: SpecInvalid for an invalid label.
    """
    for label, value in labels.items():
        if not LABEL.fullmatch(label) or (
            value is not None and not LABEL.fullmatch(value)
        ):
            label_shown = label_text(label, value)[:80]
            reason = "use letters and digits, with . _ - / between them"
            raise SpecInvalid(
                f"{label_shown!r} is not a valid label: {reason}", hint=_EXAMPLE
            )
        if label == NODE_LABEL:
            raise SpecInvalid(
                f"the label {NODE_LABEL} is the name of the node and cannot be changed",
                hint="use another label",
            )
    return tuple(sorted(labels.items()))


def read_labels(texts: Iterable[str]) -> dict[str, str | None]:
    """Parse zone=a, zone- (a removal) and gold (true). Raises: SpecInvalid."""
    labels_read: dict[str, str | None] = {}
    for text in texts:
        label, equals, value = text.partition("=")
        is_removed = not equals and label.endswith("-")
        label = label.removesuffix("-") if is_removed else label
        if label in labels_read:
            raise SpecInvalid(
                f"the label {label} is given twice", hint="write each label once"
            )
        labels_read[label] = None if is_removed else value if equals else "true"
    set_labels(labels_read)
    return labels_read
