"""Server-sent events are the same however the bytes are cut."""

from hypothesis import given
from hypothesis import strategies as st

from corral.client.sse import Parser, ServerSentEvent

TEXT = (
    b": a heartbeat\n\nid: 1\ndata: one\n\ndata: two\ndata: lines\n\r\n"
    b"event: end\nid: 1:0:7\ndata:{}\n\nretry: 5\n\n" + "data: ü\n\n".encode()
)
SENT = [
    ServerSentEvent("", "1", "one"),
    ServerSentEvent("", "1", "two\nlines"),
    ServerSentEvent("end", "1:0:7", "{}"),
    ServerSentEvent("", "1:0:7", "ü"),
]


@given(st.lists(st.integers(0, len(TEXT)), max_size=12))
def test_bytes_cut_anywhere_make_the_same_events(cuts: list[int]) -> None:
    parser = Parser()
    edges = [0, *sorted(cuts), len(TEXT)]
    found: list[ServerSentEvent] = []
    for begin, end in zip(edges, edges[1:], strict=False):
        found += parser.feed(TEXT[begin:end])
    assert found == SENT
