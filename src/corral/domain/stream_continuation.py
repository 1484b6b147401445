"""Continuation of streams whose replica was lost."""

from corral.domain.coded import Coded


class ContinueBy(Coded):
    """Way in which another replica continues a stream whose replica was lost."""

    NONE = "none", "the stream ends with an error"
    TEXT = "text", "by the text so far; the model cuts every text into the same tokens"
    VLLM = "vllm", "by token ids, as vLLM returns them"
    LLAMA_CPP = "llama.cpp", "by token ids, as llama.cpp returns them"
