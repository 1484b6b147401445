"""Kernel notifications about growing files in a folder, in place of repeated polling."""

import asyncio
import contextlib
import ctypes
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Final

_MODIFY: Final = 0x2
_CREATE: Final = 0x100
_MOVED: Final = 0x40 | 0x80
_ONLY_FOLDERS: Final = 0x01000000
_OVERFLOW: Final = 0x4000
# watch, mask, cookie, bytes of the name that follows
_EVENT: Final = struct.Struct("iIII")
_libc: Final = ctypes.CDLL(None, use_errno=True)


class Inotify:
    """Watcher of folders by inotify. It calls `woken` with the folder in which a file
    was written, created or renamed.

    If the kernel dropped events, `woken` is called with None: any folder may have
    changed. A folder is watched until it is removed or `forget` is called.
    """

    def __init__(self, woken: Callable[[Path | None], None]) -> None:
        """Open an inotify instance; this needs a running event loop.

        Raises: OSError when the user has no inotify instances left.
        """
        self._descriptor: int = _libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._descriptor < 0:
            raise OSError(ctypes.get_errno(), "inotify is not available")
        self._woken = woken
        self._watches: dict[Path, int] = {}
        self._folders: dict[int, Path] = {}
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._descriptor, self._read)

    def watch(self, folder: Path) -> bool:
        """Watch the folder, and return whether it is watched now; False if no watches
        are left or the folder does not exist."""
        if folder not in self._watches:
            mask = _MODIFY | _CREATE | _MOVED | _ONLY_FOLDERS
            watch = _libc.inotify_add_watch(self._descriptor, os.fsencode(folder), mask)
            if watch < 0:
                return False
            self._watches[folder] = watch
            self._folders[watch] = folder
        return True

    def forget(self, folder: Path) -> None:
        watch = self._watches.pop(folder, None)
        if watch is not None:
            self._folders.pop(watch, None)
            # fails when the folder went first
            _libc.inotify_rm_watch(self._descriptor, watch)

    def close(self) -> None:
        self._loop.remove_reader(self._descriptor)
        os.close(self._descriptor)

    def _read(self) -> None:
        changed: set[Path | None] = set()
        with contextlib.suppress(BlockingIOError):
            while news := os.read(self._descriptor, 65536):
                changed |= self._changed_in(news)
        for folder in changed:
            self._woken(folder)

    def _changed_in(self, news: bytes) -> set[Path | None]:
        changed: set[Path | None] = set()
        offset = 0
        while offset < len(news):
            watch, mask, _, name_bytes = _EVENT.unpack_from(news, offset)
            offset += _EVENT.size + name_bytes
            if mask & _OVERFLOW:
                changed.add(None)
            elif watch in self._folders:
                changed.add(self._folders[watch])
        return changed
