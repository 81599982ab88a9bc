"""What `python -m pumice.deploy.nats_secrets` prints for an installation that is there already."""

import pytest
import yaml

from pumice.deploy import nats_secrets


def test_the_secret_of_one_user_is_printed_alone(capsys: pytest.CaptureFixture[str]) -> None:
    nats_secrets.main(["--only-user", "visibility"])
    (secret,) = yaml.safe_load_all(capsys.readouterr().out)
    assert secret["metadata"]["name"] == "pumice-nats-visibility"
    assert secret["stringData"]["username"] == "visibility"


def test_a_user_that_there_is_not_is_refused_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        nats_secrets.main(["--only-user", "visiblity"])
    told = capsys.readouterr()
    assert "no user 'visiblity'" in told.err
    assert not told.out
