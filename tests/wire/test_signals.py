"""Signals by their names and numbers."""

import signal

import pytest

from corral.wire.signals import NAMES, name_of, number_of


@pytest.mark.parametrize("text", ["USR1", "SIGUSR1", "sigusr1", " usr1 ", "10"])
def test_one_signal_has_several_spellings(text: str) -> None:
    assert number_of(text) == signal.SIGUSR1


@pytest.mark.parametrize(
    "text", ["", "SIG", "0", "-1", "65", "32", "\u0661\u0660", "FROB", "9" * 50]
)
def test_what_is_no_signal_has_no_number(text: str) -> None:
    assert number_of(text) is None


def test_a_name_is_that_of_its_number_and_a_number_without_one_is_itself() -> None:
    assert all(name_of(number_of(name) or 0) == name for name in NAMES)
    assert name_of(number_of("40") or 0) == "40"
