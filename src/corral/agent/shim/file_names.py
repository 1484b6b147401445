"""Names of the files that a shim writes in the folder of its attempt."""

from typing import Final

SOCKET: Final = "shim.sock"
PID_FILE: Final = "shim.pid"
