"""Parsing of lists of numbers: NAME=NUMBER, GPUS:HOURS."""

from collections.abc import Sequence

from corral.cli.error_output import Usage
from corral.cli.planner.counts import number


def named_numbers(words: Sequence[str], option: str) -> dict[str, float]:
    """Parse NAME=NUMBER values, for example pue=1.3 kwh=0.12. Raises: Usage if one is
    not valid."""
    return dict(
        _parse_pair(pair_text, "=", option, "NAME=NUMBER, for example pue=1.3")
        for pair_text in words
    )


def number_pairs(words: Sequence[str], option: str) -> tuple[tuple[float, float], ...]:
    """Parse GPUS:HOURS values, for example 64:1000 16:7760. Raises: Usage if one is not
    valid."""
    hint = "GPUS:HOURS, for example 64:1000 for 64 GPUs in 1,000 hours of a year"
    pairs = (_parse_pair(pair_text, ":", option, hint) for pair_text in words)
    return tuple(
        (_parse_number(gpus_text, option, hint), second) for gpus_text, second in pairs
    )


def _parse_pair(word: str, mark: str, option: str, form: str) -> tuple[str, float]:
    left_text, mark_found, second = word.partition(mark)
    if not mark_found or not left_text:
        raise Usage(
            f"{option} {word} does not have the right form",
            hint=f"write {option} {form}",
        )
    return left_text, _parse_number(second, option, form)


def _parse_number(word: str, option: str, form: str) -> float:
    try:
        return float(number(word))
    except ValueError as error:
        raise Usage(f"{option}: {error}", hint=f"write {option} {form}") from None
