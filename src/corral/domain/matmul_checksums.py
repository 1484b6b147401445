"""Matrix products with a known exact result. A GPU or CPU that computes another result
corrupts data.

All entries are small whole numbers, so floats hold the entries, their products and
every partial sum exactly, in any order of addition. A result that differs is therefore
wrong, not rounded. A[i, k] and B[k, j] depend only on their positions. In the NARROW
matrices, for 16-bit floats, every entry is -1, 0 or 1 and the inner length at most 256,
so that such floats hold every sum exactly. The known hash is the SHA-256 of the result
as little-endian int32, row by row.
"""

from collections.abc import Iterator, Mapping
from typing import Final

WIDE, NARROW = 17, 3  # how many values an entry may have, about 0
A_PLACE: Final = (131, 71, 97)
B_PLACE: Final = (113, 59, 89)
NARROW_INNER: Final = 256
# by (values, rows and columns, inner length)
KNOWN: Final[Mapping[tuple[int, int, int], str]] = {
    (WIDE, 64, 64): "6a0bb3e12d05a19e16685b887e9319b34f8b21cd511e9b685db9dd3799219e31",
    (
        WIDE,
        512,
        512,
    ): "6cd5cdcfb94f3c1825c017e0b0345e5713b15bd6bd592248593b264605c98cf4",
    (
        WIDE,
        2048,
        2048,
    ): "fe989b8613c0ea112122d46fa1b48fe56523763108d6f50bef322457bc25d094",
    (
        NARROW,
        2048,
        256,
    ): "e46c18f9e6a95c1cefe3c469e68c2ee53f82feb8a8ea3488a1c09805a6702a41",
}


def entry(place: tuple[int, int, int], values: int, row: int, column: int) -> int:
    """Return the entry of matrix A or B at this row and column.

    Args:
        place: The three constants of the matrix: A_PLACE or B_PLACE.
        values: How many whole numbers around 0 an entry may be.
    """
    by_row, by_column, by_both = place
    mixed = by_row * row + by_column * column + (row * column) % by_both
    return mixed % values - values // 2


def row_of(
    place: tuple[int, int, int], values: int, row: int, length: int
) -> list[float]:
    return [float(entry(place, values, row, column)) for column in range(length)]


def answer(values: int, side: int, inner: int) -> Iterator[int]:
    """Yield the entries of A times B, row by row, computed with 64-bit floats in plain
    Python. The product has `side` rows and columns."""
    columns = [
        [float(entry(B_PLACE, values, row_index, column)) for row_index in range(inner)]
        for column in range(side)
    ]
    for number in range(side):
        row = row_of(A_PLACE, values, number, inner)
        for column in columns:
            yield int(sum(map(float.__mul__, row, column)))
