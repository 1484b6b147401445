"""What `corral up` is told of a provider: refused where unsafe, its secret kept from
others."""

from pathlib import Path
from typing import Any

import pytest

from corral.boot.declared_settings import OIDC_SECRET_FILE, OIDC_SECRET_VARIABLE
from corral.boot.oidc_provider import (
    provider_secret,
    rule_of,
)
from corral.boot.settings import ClusterDir, ClusterSettings, keep_variable
from corral.domain.errors import Conflict, SpecInvalid
from corral.domain.users import Role

GIVEN: Any = {
    "oidc_issuer": "https://login.example.org",
    "oidc_client_id": "corral",
    "oidc_roles": ("ml=team=user", "*=viewer"),
}


def test_a_group_is_all_that_stands_before_its_role() -> None:
    rule = rule_of(ClusterSettings(**GIVEN))
    assert rule is not None
    assert rule.roles == (("ml=team", Role.USER), ("*", Role.VIEWER))
    assert rule_of(ClusterSettings()) is None


@pytest.mark.parametrize(
    ("wrong", "hint"),
    [
        ({"oidc_issuer": "http://login.example.org"}, "https://"),
        ({"oidc_client_id": None}, "--oidc-client-id"),
        ({"oidc_roles": ()}, "--oidc-role"),
        ({"oidc_roles": ("ml-team=king",)}, "GROUP=ROLE"),
        ({"oidc_roles": ("ml-team=node",)}, "--oidc-role"),
        ({"oidc_roles": ("viewer",)}, "GROUP=ROLE"),
    ],
)
def test_what_is_unsafe_or_lets_nobody_in_is_refused_with_what_to_type(
    wrong: dict[str, Any], hint: str
) -> None:
    with pytest.raises(SpecInvalid) as refused:
        rule_of(ClusterSettings(**(GIVEN | wrong)))
    assert hint in refused.value.hint


def test_the_secret_of_the_environment_is_kept_where_only_its_owner_reads(
    tmp_path: Path,
) -> None:
    place = ClusterDir(tmp_path)
    assert keep_variable(place, OIDC_SECRET_VARIABLE, OIDC_SECRET_FILE, {}) is None
    said = {"CORRAL_OIDC_SECRET": "hush"}
    file = keep_variable(place, OIDC_SECRET_VARIABLE, OIDC_SECRET_FILE, said)
    assert file is not None
    assert Path(file).stat().st_mode & 0o777 == 0o600
    settings = ClusterSettings(**GIVEN, oidc_secret_file=file)
    assert provider_secret(settings) == "hush"
    assert provider_secret(ClusterSettings(**GIVEN)) is None
    Path(file).chmod(0o640)
    with pytest.raises(Conflict, match="other users may read it"):
        provider_secret(settings)
    Path(file).unlink()
    with pytest.raises(Conflict, match="cannot be read"):
        provider_secret(settings)
