"""Permutations of any length in constant memory, by a Feistel network.

The bits of a number are split into two halves, which are mixed in several rounds. This
is a permutation of all numbers with that many bits. A result that is too large is
permuted again until it is in range (cycle walking), at most four times on average.
The arithmetic is that of unsigned integers alone, so that the order is the same with
every version of numpy.
"""

import hashlib
from typing import Any, Final

import numpy as np

Indices = np.ndarray[Any, np.dtype[np.int64]]
_Words = np.ndarray[Any, np.dtype[np.uint64]]
ROUNDS: Final = 4
_LOW: Final = np.uint64(0xFFFFFFFF)
_FACTOR_1: Final = np.uint64(0x85EBCA6B)  # of the finalizer of MurmurHash3
_FACTOR_2: Final = np.uint64(0xC2B2AE35)
_SHIFT_1: Final = np.uint64(16)
_SHIFT_2: Final = np.uint64(13)


class Permutation:
    """A permutation of the numbers below `length`, which depends on `key` alone.

    Raises: ValueError unless length is from 1 to 2^62.
    """

    def __init__(self, length: int, *key: int) -> None:
        if not 1 <= length <= 2**62:
            raise ValueError(f"length must be from 1 to 2^62, but it is {length}")
        self.length = length
        half_bits = max(1, ((length - 1).bit_length() + 1) // 2)
        self._half = np.uint64(half_bits)
        self._mask = np.uint64(2**half_bits - 1)
        digest = hashlib.sha256(repr(key).encode()).digest()
        self._keys = np.frombuffer(digest[: 4 * ROUNDS], "<u4").astype(np.uint64)

    def __call__(self, indices: Indices) -> Indices:
        """Return the numbers at these places of the permutation. Shape: any."""
        words = self._mix(indices.astype(np.uint64))
        while True:
            outside = words >= self.length
            if not outside.any():
                return words.astype(np.int64)
            words[outside] = self._mix(words[outside])

    def _mix(self, words: _Words) -> _Words:
        high = words >> self._half
        low = words & self._mask
        for key in self._keys:
            mixed = (low ^ key) & _LOW
            mixed = (mixed ^ (low >> _SHIFT_1)) * _FACTOR_1 & _LOW
            mixed = (mixed ^ (mixed >> _SHIFT_2)) * _FACTOR_2 & _LOW
            mixed ^= mixed >> _SHIFT_1
            following = high ^ (mixed & self._mask)
            high = low
            low = following
        joined: _Words = (high << self._half) | low
        return joined
