"""Which certificates an agent trusts, and what it says where there are none."""

import ssl
from pathlib import Path

import pytest

from corral.agent import settings
from corral.agent.settings import SettingsInvalid, trust
from corral.domain.ids import NodeId
from corral.wire.node import NodeSettings


def own(trusted: str | None) -> NodeSettings:
    return NodeSettings(node=NodeId("n1"), head_file="head.json", trusted=trusted)


def test_a_file_without_a_certificate_is_named(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("nothing")
    with pytest.raises(SettingsInvalid, match=r"/ca.pem does not contain a valid"):
        trust(own(str(tmp_path / "ca.pem")))


def test_a_store_of_the_machine_that_cannot_be_read_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def unreadable(file: str | None, *, system: bool) -> ssl.SSLContext:
        raise OSError("no such file")

    monkeypatch.setattr(settings, "trusting", unreadable)
    with pytest.raises(SettingsInvalid, match="^the certificate store of this machine"):
        trust(own(None))
