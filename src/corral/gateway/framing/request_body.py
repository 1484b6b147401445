"""Bodies of requests: the fields that decide, read once; the bytes pass unchanged."""

from typing import Annotated, Final

import msgspec

from corral.gateway.openai_errors import GatewayCode, refused

MOST_TOKENS: Final = 1 << 31
MOST_ANSWERS: Final = 128
NOTHING: Final = msgspec.Raw(b"")

_Tokens = Annotated[int, msgspec.Meta(ge=0, lt=MOST_TOKENS)]


class BodyFields(msgspec.Struct, gc=False):
    """Fields of a body that the gateway reads."""

    model: str | None = None
    stream: bool | None = None
    max_tokens: _Tokens | None = None
    max_completion_tokens: _Tokens | None = None
    max_output_tokens: _Tokens | None = None
    n: Annotated[int, msgspec.Meta(ge=1, le=MOST_ANSWERS)] | None = None
    previous_response_id: str | None = None
    tools: msgspec.Raw = NOTHING
    messages: msgspec.Raw = NOTHING
    prompt: msgspec.Raw = NOTHING
    input: msgspec.Raw = NOTHING

    @property
    def prompt_text(self) -> bytes:
        """The bytes that begin alike for requests with a common beginning."""
        text = bytes(self.messages or self.prompt or self.input)
        # engines write the tools before the messages
        return bytes(self.tools) + text if self.tools else text

    @property
    def output_limit(self) -> int | None:
        """Most tokens of the answer, as the client limits them."""
        return self.max_completion_tokens or self.max_tokens or self.max_output_tokens


_DECODER: Final = msgspec.json.Decoder(BodyFields)


def read_body(data: bytes) -> BodyFields:
    """Decode the fields that decide. Raises: HeadRefused."""
    try:
        body = _DECODER.decode(data)
    except msgspec.ValidationError as error:
        text, _, field = str(error).partition(" - at `$.")
        param = field.rstrip("`") or None
        raise refused(
            GatewayCode.BAD_REQUEST,
            f"{param or 'the body'} is not valid: {text}",
            param=param,
        ) from None
    except RecursionError:
        raise refused(GatewayCode.BAD_REQUEST, "the body is nested too deep") from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise refused(GatewayCode.BAD_REQUEST, "the body is not valid JSON") from None
    if not body.model:
        raise refused(GatewayCode.BAD_REQUEST, "the body needs a model", param="model")
    return body


def body_with_model(data: bytes, model: str) -> bytes:
    """Return a valid body with another name of the model."""
    fields = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
    fields["model"] = msgspec.Raw(msgspec.json.encode(model))
    return msgspec.json.encode(fields)
