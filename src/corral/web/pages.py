"""The files of the web pages, at the head's address: `/` and below, next to `/v1/`.

They hold no cluster data, so they require no token; all data comes from the API. A file
under `assets/` has a content hash in its name, and browsers cache it forever. The page
itself is requested each time.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from os.path import isfile
from pathlib import Path
from typing import Final

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

# written by `make ui`, and into each wheel
FOLDER: Final = Path(__file__).parent / "static"
NOT_PAGES: Final = ("/v1/", "/healthz", "/metrics")
# as the build has packed them, best first
PACKED: Final = (("br", ".br"), ("gzip", ".gz"))
KEPT: Final = "public, max-age=31536000, immutable"
ANEW: Final = "no-cache"
_TYPES: Final[Mapping[str, str]] = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".json": "application/json",
    ".woff2": "font/woff2",
}
GUARDS: Final[Mapping[str, str]] = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' data:; font-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
NOT_BUILT: Final = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Corral</title>
<h1>The web pages of Corral are not built</h1>
<p>This Corral was installed from its source without Node.js, which builds the web pages. Install
Node.js, then run in the folder of the source:</p>
<pre>make ui</pre>
<p>and load this page again. A wheel of Corral contains the pages. The command line and the API work
without them: <code>corral status</code>.</p></html>"""


@dataclass(frozen=True, slots=True)
class File:
    """A file to serve. `packed`: its compressed content, by the name of the encoding."""

    content: bytes
    kind: str
    caching: str
    packed: Mapping[str, bytes]


class Pages:
    """ASGI application that serves the web pages. It passes all other requests to
    `app`, the API."""

    def __init__(self, app: ASGIApp, folder: Path = FOLDER) -> None:
        self._app = app
        self._folder = folder
        self._files: dict[str, File] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        asks_for_page = (
            scope["type"] == "http"
            and scope["method"] in ("GET", "HEAD")
            and is_page(scope["path"])
        )
        if not asks_for_page:
            await self._app(scope, receive, send)
        else:
            await self._build_response(scope)(scope, receive, send)

    def _build_response(self, scope: Scope) -> Response:
        name = scope["path"].lstrip("/")
        file = self._file(name) or (
            None if _is_file(name) else self._file("index.html")
        )
        if file is None:
            status, text = (
                (404, "there is no such file\n") if _is_file(name) else (200, NOT_BUILT)
            )
            kind = "text/plain" if _is_file(name) else "text/html"
            return Response(
                text, status, {**GUARDS, "Cache-Control": ANEW}, media_type=kind
            )
        content, headers = file.content, {**GUARDS, "Cache-Control": file.caching}
        headers |= {"Vary": "Accept-Encoding"}
        accepted_codings = (
            dict(scope["headers"]).get(b"accept-encoding", b"").decode("latin-1")
        )
        for coding, _ in PACKED:
            if coding in accepted_codings and coding in file.packed:
                content, headers = (
                    file.packed[coding],
                    {**headers, "Content-Encoding": coding},
                )
                break
        return Response(content, 200, headers, media_type=file.kind)

    def _file(self, name: str) -> File | None:
        """Return the file; None if there is no such file. A file under `assets/` never
        changes and is read only once; the page is read again for each request."""
        file = self._files.get(name)
        if file is not None and file.caching == KEPT:
            return file
        path = self._folder / name
        kind = _TYPES.get(path.suffix)
        if (
            kind is None or ".." in path.parts or not isfile(path)
        ):  # also of a name that is too long
            return None
        packed = {
            coding: path.with_name(path.name + ending).read_bytes()
            for coding, ending in PACKED
            if path.with_name(path.name + ending).is_file()
        }
        caching = KEPT if name.startswith("assets/") else ANEW
        self._files[name] = File(path.read_bytes(), kind, caching, packed)
        return self._files[name]


def is_page(path: str) -> bool:
    """Return whether the head answers this path with the web pages, even if there is no
    such file."""
    return not path.startswith(NOT_PAGES)


def _is_file(name: str) -> bool:
    """Return whether the name is that of a file. The address of a page has no file
    extension. A missing file gets an error, not the page."""
    return name.startswith("assets/") or Path(name).suffix in _TYPES
