"""Base class of the codes that programs read. Each code has a meaning and may have a
remedy. docs/reference/codes.md lists all of them and is generated from these classes.
"""

from enum import StrEnum
from typing import Self


class Coded(StrEnum):
    """A code with documentation. Its value is what the API, events and the store show.

    `meaning`: one sentence without a full stop. `remedy`: what a user can do about it;
    "" if there is nothing to do.
    """

    meaning: str
    remedy: str

    def __new__(cls, value: str, meaning: str = "", remedy: str = "") -> Self:
        """Create a member from (value, meaning, remedy)."""
        code = str.__new__(cls, value)
        code._value_ = value
        code.meaning = meaning
        code.remedy = remedy
        return code
