"""Starting nodes on other machines over ssh: Corral is installed on each machine, and
the machine joins the cluster."""

import asyncio
import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from corral.domain.errors import CorralError, SpecInvalid, Trouble, Unsupported

if TYPE_CHECKING:
    import asyncssh

CONNECT_SECONDS: Final = 20.0
RUN_SECONDS: Final = 600.0  # an installation fetches some 40 MB
AT_ONCE: Final = 32
SSH_PORT: Final = 22
VENV: Final = ".corral/venv"
WHEELS: Final = ".corral/wheels"
# of the base install, by hash
REQUIREMENTS: Final = Path(__file__).with_name("requirements.txt")
_MAIN: Final = "from corral.cli.main import main; main()"
_FIND: Final = (
    "for python in {candidates}; do "
    "command -v $python >/dev/null 2>&1 && "
    "$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && "
    "echo $python && exit 0; done; exit 1"
)
_PYTHONS: Final = ("python3.13", "python3.12", "python3.11", "python3", "python")


class HostFailed(Trouble):
    """A machine could not be made a node; the hint says what to do next."""

    code = "host_failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class SshHost:
    """One line of the file of hosts. `words`: arguments of `corral join` on that host."""

    host: str
    port: int = SSH_PORT
    user: str | None = None
    words: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.host if self.port == SSH_PORT else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SshAccess:
    """How to reach hosts over ssh. If `user` or `key` is None, ~/.ssh/config decides.

    `python`: a Python on the host that has Corral. None: install Corral into
    ~/.corral/venv, together with `extra_packages`.
    """

    user: str | None = None
    key: Path | None = None
    python: str | None = None
    extra_packages: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Invitation:
    """What a machine needs to join: the head's address, its certificate's fingerprint,
    and a join token."""

    url: str
    fingerprint: str
    token: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HostOutcome:
    """Result for one host: the node's name, or the error and a hint."""

    target: SshHost
    node: str = ""
    trouble: str = ""
    hint: str = ""


def read_targets(text: str, where: str) -> list[SshHost]:
    """Parse the file of hosts: one host a line, [USER@]HOST[:PORT], followed by
    arguments of `corral join` on that host.

    Raises: SpecInvalid with the number of the line that is not valid.
    """
    ssh_hosts: list[SshHost] = []
    for number, line in enumerate(text.splitlines(), start=1):
        try:
            host_fields = shlex.split(line, comments=True)
            if host_fields:
                ssh_hosts.append(_parse_host_line(host_fields))
        except ValueError as error:
            raise SpecInvalid(
                f"{where}, line {number}: {error}",
                hint="write one host per line, for example: ann@10.0.0.2 --name w1 "
                "--label zone=a",
            ) from None
    places = [(ssh_host.host, ssh_host.port, ssh_host.words) for ssh_host in ssh_hosts]
    if not ssh_hosts or len(set(places)) < len(places):
        complaint = "names the same host twice" if ssh_hosts else "names no host"
        raise SpecInvalid(f"{where} {complaint}", hint="write one host per line")
    return ssh_hosts


def _parse_host_line(words: Sequence[str]) -> SshHost:
    """Parse one line of the file of hosts. Raises: ValueError if it does not begin with
    a host."""
    user, _, address = words[0].rpartition("@")
    host, colon, port = address.rpartition(":")
    if not colon or address.count(":") > 1 and not address.startswith("["):
        host, port = address, str(SSH_PORT)
    host = host.strip("[]")
    if not host or host.startswith("-") or not port.isdecimal():
        raise ValueError(f"{words[0]!r} is not a valid host")
    return SshHost(host=host, port=int(port), user=user or None, words=tuple(words[1:]))


def bring_up_hosts(
    targets: Sequence[SshHost],
    way: SshAccess,
    invitation: Invitation,
    wheel: Path | None,
) -> list[HostOutcome]:
    """Start nodes on all hosts at once, and return the outcome of each in the order of
    `targets`.

    `way`: how to log in. `wheel`: Corral's package to install.

    Raises: Unsupported if asyncssh is not installed.
    """
    try:
        import asyncssh
    except ImportError:
        raise Unsupported(
            "--hosts needs the Python package asyncssh, which is not installed",
            hint="run: pip install 'corral[ssh]'; or run corral join on each machine",
        ) from None
    asyncssh.set_log_level("ERROR")

    async def together() -> list[HostOutcome]:
        turns = asyncio.Semaphore(AT_ONCE)

        async def one(target: SshHost) -> HostOutcome:
            async with turns:
                return await _bring_up_host(target, way, invitation, wheel)

        return await asyncio.gather(*(one(target) for target in targets))

    return asyncio.run(together())


async def _bring_up_host(
    target: SshHost, way: SshAccess, invitation: Invitation, wheel: Path | None
) -> HostOutcome:
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            connection = await _connect_to_host(target, way)
        async with connection, asyncio.timeout(RUN_SECONDS):
            python = way.python or await _installed(
                connection, wheel, way.extra_packages
            )
            node = await _join_cluster(connection, target, python, invitation)
        return HostOutcome(target=target, node=node)
    except CorralError as error:
        return HostOutcome(target=target, trouble=error.message, hint=error.hint)
    except Exception as error:
        trouble, hint = _explained(target, error)
        return HostOutcome(target=target, trouble=trouble, hint=hint)


async def _connect_to_host(
    target: SshHost, way: SshAccess
) -> "asyncssh.SSHClientConnection":
    """Connect to a host, whose host key must be known already: an unknown key is not
    trusted at first use."""
    import asyncssh

    options: dict[str, Any] = {}
    if (user := target.user or way.user) is not None:
        options["username"] = user
    if way.key is not None:
        options["client_keys"] = [str(way.key)]
    return await asyncssh.connect(target.host, target.port, **options)


def _explained(target: SshHost, error: Exception) -> tuple[str, str]:
    """Return (what failed, what to do) for an error."""
    import asyncssh

    port = "" if target.port == SSH_PORT else f"-p {target.port} "
    if isinstance(error, asyncssh.HostKeyNotVerifiable):
        scan = f"ssh-keyscan {port}{target.host} >> ~/.ssh/known_hosts"
        return (
            "the host key of this machine is not in known_hosts",
            f"compare the host key with that of the machine, then run: {scan}",
        )
    if isinstance(error, asyncssh.PermissionDenied):
        return (
            "the machine refused the ssh log-in with this user and key",
            f"set --ssh-user and --ssh-key; try: ssh {port}{target.host}",
        )
    if isinstance(error, asyncssh.KeyImportError):
        return (
            f"the ssh key cannot be read: {error}",
            "name a key that ssh can use: --ssh-key FILE",
        )
    if isinstance(error, TimeoutError):
        return "the machine does not answer in time", f"try: ssh {port}{target.host}"
    return f"{error}"[:200] or type(error).__name__, f"try: ssh {port}{target.host}"


async def _run_remote_script(
    connection: "asyncssh.SSHClientConnection", script: str, said: str = ""
) -> tuple[int, str, str]:
    """Run a shell script on the host. Return (exit code, output, errors)."""
    done = await connection.run(f"sh -c {shlex.quote(script)}", input=said)
    code = -1 if done.returncode is None else done.returncode
    return code, str(done.stdout or ""), str(done.stderr or "")


async def _installed(
    connection: "asyncssh.SSHClientConnection",
    wheel: Path | None,
    extra_packages: Sequence[str],
) -> str:
    """Return the path of the Python in a venv on the host. The venv has exactly the
    code in `wheel` and the additional packages; it is created if necessary.

    Raises: HostFailed.
    """
    assert wheel is not None
    python, mark = f"$HOME/{VENV}/bin/python", f"$HOME/{VENV}/corral.sha256"
    installed = " ".join((sha256(wheel.read_bytes()).hexdigest(), *extra_packages))
    code, stdout, _ = await _run_remote_script(connection, f'cat "{mark}"')
    if code == 0 and stdout.strip() == installed:
        return python
    code, stdout, _ = await _run_remote_script(
        connection, _FIND.format(candidates=" ".join(_PYTHONS))
    )
    if code != 0:
        raise HostFailed(
            "the machine has no Python 3.11 or newer",
            hint="install Python 3.11 or newer on that machine, then try again",
        )
    await _upload_file(connection, wheel)
    await _upload_file(connection, REQUIREMENTS)
    pip = f'"{python}" -m pip install -q --disable-pip-version-check'
    steps = (
        f'{stdout.strip()} -m venv --clear "$HOME/{VENV}"',
        f'{pip} --require-hashes -r "$HOME/{WHEELS}/{REQUIREMENTS.name}"',
        f'{pip} --no-deps "$HOME/{WHEELS}/{wheel.name}"',
        *([f"{pip} {shlex.join(extra_packages)}"] if extra_packages else []),
        f'echo "{installed}" > "{mark}"',
    )
    for step in steps:
        code, stdout, errors = await _run_remote_script(connection, step)
        if code != 0:
            final_lines = [
                line for line in (errors or stdout).splitlines() if line.strip()
            ][-1:]
            raise HostFailed(
                "Corral cannot be installed on that machine: "
                f"{' '.join(final_lines)[:200]}",
                hint=f"run this on that machine to see the error: {step}",
            )
    return python


async def _upload_file(connection: "asyncssh.SSHClientConnection", file: Path) -> None:
    """Copy a file to the host through the shell, because not every ssh server supports
    file transfer. Raises: HostFailed if it cannot be written."""
    script = (
        f'umask 077; mkdir -p "$HOME/{WHEELS}" && cat > "$HOME/{WHEELS}/{file.name}"'
    )
    command = f"sh -c {shlex.quote(script)}"
    done = await connection.run(command, input=file.read_bytes(), encoding=None)
    if done.returncode != 0:
        raise HostFailed(
            f"~/{WHEELS} cannot be written on that machine", hint="run there: df -h ~"
        )


async def _join_cluster(
    connection: "asyncssh.SSHClientConnection",
    target: SshHost,
    python: str,
    by: Invitation,
) -> str:
    """Run `corral join` on the host, and return the node's name.

    The token is passed over standard input, because every user of the host can see
    arguments. Raises: HostFailed.
    """
    join_arguments = ["join", by.url, *target.words, "--json"]
    join_arguments += ["--fingerprint", by.fingerprint] if by.fingerprint else []
    typed = f'"{python}" -P -c {shlex.quote(_MAIN)} {shlex.join(join_arguments)}'
    script = f"IFS= read -r CORRAL_JOIN_TOKEN; export CORRAL_JOIN_TOKEN; exec {typed}"
    code, stdout, errors = await _run_remote_script(connection, script, f"{by.token}\n")
    try:
        if code == 0:
            return str(json.loads(stdout)["id"])
        error = json.loads(errors)["error"]
        raise HostFailed(
            str(error["message"]), hint=f"on that machine: {error['hint']}"
        )
    except (ValueError, KeyError, TypeError):
        last_lines = (errors or stdout).strip().splitlines()[-1:]
        raise HostFailed(
            f"corral join ended with code {code}: {' '.join(last_lines)[:200]}",
            hint=f"run corral join on that machine: ssh {target.host}",
        ) from None
