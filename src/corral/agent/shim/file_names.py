"""What a shim leaves in its attempt's folder, so that others find it."""

from typing import Final

SOCKET: Final = "shim.sock"
PID_FILE: Final = "shim.pid"
