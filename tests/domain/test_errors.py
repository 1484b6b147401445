"""The text of an error, with what to do next."""

import pytest

from corral.domain.errors import Refusal


@pytest.mark.parametrize(
    ("hint", "text"), [("", "no account"), ("set one", "no account; set one")]
)
def test_the_whole_text_of_an_error_has_its_hint(hint: str, text: str) -> None:
    assert Refusal("no account", hint=hint).full_text == text
