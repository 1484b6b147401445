"""alerts.yaml is read as people write it, and refused with its line."""

import pytest

from corral.domain.errors import SpecInvalid
from corral.insight.alerts import AlertKind, Severity
from corral.wire.alerts import AlertFile, read_alerts
from corral.wire.yaml_document import documents_of

WHOLE = """kind: alerts
to:
  - name: team
    slack: https://hooks.slack.com/services/T/B/x
    least: warning
    of: [job_failed, node_down]
    repeat: 1h
    quiet: {from: "22:00", until: "07:30", zone: Europe/Berlin}
  - name: mail
    email: {to: [ops@example.org], from: corral@example.org, host: smtp.example.org}
rules:
  job_failed: off
  job_stuck: off
  node_down: 2m
  queue_starved: 1d
  budget_low: 20%
  disk_full: 0.1
"""


def parsed(text: str) -> AlertFile:
    (document,) = documents_of(text, source="alerts.yaml")
    return read_alerts(document)


def test_a_whole_file_says_whom_to_tell_of_what() -> None:
    found = parsed(WHOLE)
    taste = found.to[0].taste
    assert taste.least == Severity.WARNING
    assert taste.kinds == {AlertKind.JOB_FAILED, AlertKind.NODE_DOWN}
    assert taste.repeat_seconds == 3600
    assert taste.quiet is not None
    assert (taste.quiet.from_seconds, taste.quiet.until_seconds) == (
        22 * 3600,
        7.5 * 3600,
    )
    rules = found.rules.domain
    assert (rules.job_stuck_seconds, rules.node_down_seconds) == (None, 120)
    assert (rules.budget_left_share, rules.disk_free_share) == (0.2, 0.1)
    assert not rules.job_failed
    assert found.to[1].email is not None
    assert found.to[1].email.port == 587


A = "to:\n  - {name: a, slack: 'https://x'"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("kind: alerts\nto: []", "alerts.yaml:2: to"),
        ("to:\n  - {name: a}", "receiver a has no address"),
        (A + ", webhook: 'https://y'}", "webhook and slack"),
        ("to:\n  - {name: a, slack: 'ftp://x'}", "is not a valid web address"),
        ("to:\n  - {name: a, slack: 'https://u:p@x'}", "is not a valid web address"),
        (A + ", leest: info}", "there is no such field"),
        (A + ", of: [fire]}", "is not a kind of alert"),
        (A + ", quiet: {from: 25:00, until: '7:00'}}", "not a valid time of day"),
        (A + ", quiet: {from: '1:00', until: '7:00', zone: Moon}}", "is not a time zone"),
        (A + "}\n  - {name: a, slack: 'https://y'}", "the name of several receivers"),
        (A + "}\nrules: {disk_full: 200%}", "is not a share"),
        (A + "}\nrules: {node_down: soon}", "is not a valid duration"),
        ('to:\n  - {name: a, email: {to: ["a@b\\nBcc: c@d"], from: a@b, host: h}}', "valid e-mail"),
    ],
)  # fmt: skip
def test_what_cannot_be_meant_is_refused_with_its_line(text: str, said: str) -> None:
    with pytest.raises(SpecInvalid) as refused:
        parsed(text)
    assert said in refused.value.message
    assert "alerts.yaml:" in refused.value.message
    assert refused.value.hint
