"""What is shown of a node."""

from corral.cli.nodes import refused_text


def test_of_many_refused_users_the_first_has_a_reason_and_a_few_have_a_name() -> None:
    why = "it has no account u00; run there: useradd u00"
    users = {f"u{number:02}": why for number in range(200)}
    assert refused_text({}) == ""
    assert refused_text({"u00": why}) == f"u00: {why}"
    assert refused_text({"u00": why, "u01": why}) == f"u00: {why}; nor u01"
    assert (
        refused_text(users)
        == f"u00: {why}; nor u01, u02, u03, u04, u05 and 194 more (--json)"
    )
