"""Parts of a request that different replicas of a service compute."""

from typing import Final

from corral.domain.coded import Coded


class ServingRole(Coded):
    """Part of each request that a replica of a service computes."""

    WHOLE = "", "all of it"
    PREFILL = "prefill", "the prompt, whose KV cache another replica takes over"
    DECODE = "decode", "the answer, and short prompts, or all without prefill replicas"

    @property
    def is_prefill(self) -> bool:
        """Whether it only prepares requests that other replicas answer."""
        return self is ServingRole.PREFILL


class CacheTransfer(Coded):
    """Way of the KV cache of a prompt from the replica that computes it to the one that
    answers."""

    NONE = "", "no transfer: each replica computes whole requests"
    VLLM = "vllm", "by the parameters that vLLM returns with the first answer"
    SGLANG = "sglang", "at the bootstrap port of the prefill replica"
    SHARED = "shared", "by a folder or a store that both replicas read"


APART: Final = (ServingRole.PREFILL, ServingRole.DECODE)
