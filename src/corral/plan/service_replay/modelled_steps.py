"""Seconds of the steps of an engine, computed once for steps that are nearly alike."""

from math import frexp

from corral.perf.inference import Replica, StepWork, step_seconds

MANTISSA_STEPS = 32  # of a context, and of a batch: steps of 3 % at most


class ModelledSteps:
    """Step times of one replica, by `perf.inference`."""

    __slots__ = ("_decode", "_mixed", "replica")

    def __init__(self, replica: Replica) -> None:
        self.replica = replica
        self._decode: dict[tuple[float, float], float] = {}
        self._mixed: dict[tuple[float, float, int, float, float], float] = {}

    def decode_seconds(self, running: int, context: float) -> float:
        """Return the seconds of a step that adds a token to each of `running` sequences
        of `context` tokens on average."""
        key = (_rounded(running), _rounded(context))
        seconds = self._decode.get(key)
        if seconds is None:
            work = StepWork(decodes=key[0], context=key[1])
            seconds = self._decode[key] = step_seconds(self.replica, work)
        return seconds

    def mixed_seconds(
        self,
        prompt: int,
        prompt_context: float,
        ends: int,
        running: int,
        context: float,
    ) -> float:
        """Return the seconds of a step that also computes `prompt` tokens of prompts,
        which attend to `prompt_context` tokens on average; `ends` prompts end in it."""
        key = (
            _rounded(prompt),
            _rounded(prompt_context),
            ends,
            _rounded(running),
            _rounded(context),
        )
        seconds = self._mixed.get(key)
        if seconds is None:
            work = StepWork(
                prompt=key[0],
                prompt_context=key[1],
                ends=ends,
                decodes=key[3],
                context=key[4],
            )
            seconds = self._mixed[key] = step_seconds(self.replica, work)
        return seconds


def _rounded(value: float) -> float:
    """Return a number with five significant binary digits."""
    if value < MANTISSA_STEPS:
        return float(round(value))
    fraction, exponent = frexp(value)
    return float(round(fraction * MANTISSA_STEPS) / MANTISSA_STEPS * 2.0**exponent)
