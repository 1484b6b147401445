"""Pieces of an answer of llama.cpp, as another llama.cpp takes them in a prompt."""


class GeneratedPieces:
    """Token ids of an answer, and texts where the engine gave no ids.

    llama.cpp omits the ids of a character of several tokens except the last. The text of
    the character stands for them; but bytes that are no text cannot be written so. From
    there on the answer is generated again, and the text that the client has is skipped.

    Attributes:
        pieces: Ids and texts up to the last place that is exact.
        exact_tokens: Their number in tokens.
        base_tokens: Tokens of the answer that the present attempt did not generate.
    """

    __slots__ = (
        "_inexact_text",
        "_is_inexact",
        "_pending_ids",
        "_predicted",
        "_repeated_text",
        "base_tokens",
        "exact_tokens",
        "pieces",
    )

    def __init__(self) -> None:
        self.pieces: list[int | str] = []
        self.exact_tokens = 0
        self.base_tokens = 0
        self._inexact_text = ""
        self._is_inexact = False
        self._pending_ids: list[int] = []
        self._predicted = 0
        self._repeated_text = ""

    @property
    def needs_repetition(self) -> bool:
        """Whether another engine must generate some of the text again."""
        return bool(self._inexact_text)

    def begin_attempt(self) -> None:
        """Begin after the last exact place, at another engine."""
        self.base_tokens = self.exact_tokens
        self._repeated_text = self._inexact_text
        self._is_inexact = False
        self._predicted = 0
        self._pending_ids.clear()

    def add_ids(self, ids: list[int]) -> None:
        """Take ids whose text follows."""
        self._pending_ids += ids

    def add_text(self, text: str, predicted: int) -> str | None:
        """Take a text; return the part that the client has not, None if the text is not
        the one that it has.

        Args:
            predicted: Tokens of this attempt up to the end of the text.
        """
        size = min(len(text), len(self._repeated_text))
        if text[:size] != self._repeated_text[:size]:
            return None
        self._repeated_text = self._repeated_text[size:]
        has_ids = len(self._pending_ids) == predicted - self._predicted
        self._predicted = predicted
        if not has_ids and "\ufffd" in text:
            self._is_inexact = True
        if self._is_inexact:
            self._inexact_text += text[size:]
        else:
            self.pieces += self._pending_ids if has_ids else [text]
            self.exact_tokens = self.base_tokens + predicted
            self._inexact_text = self._repeated_text
        self._pending_ids.clear()
        return text[size:]
