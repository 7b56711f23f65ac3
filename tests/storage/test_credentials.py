"""One rule for users and passwords in addresses, wherever an address is shown, refused or hidden."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launch.shared.command import _leave
from launch.shared.job_package import parcel
from launch.studies.resume_command import Resumption
from pcl.storage.credentials import masked, password_of, shown_uri, without_credentials
from pcl.storage.object_stores import check_address
from pcl.studies.cluster.jobs import Jobs
from pcl.studies.ledger.study_storage import Storage
from pcl.studies.session.request import RunRequest
from pcl.studies.tracking.store import Store, StoreError
from tests.support.properties import examples

# Unescaped, with what separates the parts of an address among it; "\u00e0" has a byte that Latin-1 takes for a space
LETTERS = "abcXYZ0189/@:?#%!$&'()*+,;=._~-[]{}|^\\\"<>\u00e0"
HOST = "tracking.example"
PASSWORDS = (
    st.text(LETTERS, min_size=1, max_size=12)
    .filter(lambda text: not re.match(r"\d{1,5}[/?#]", text))  # HOST:PORT/PATH
    .map(lambda text: f"Se{text}cret" if text[0] not in "0123456789" else f"{text}cret")
)
USERS = st.text("abcXYZ01._-", max_size=6)
RESTS = st.sampled_from(["", "/", ":5000", ":5000/team", "/a/b"])


@given(USERS, PASSWORDS, RESTS)
@examples(200)
def test_no_password_is_shown_or_let_through(user: str, password: str, rest: str) -> None:
    uri = f"http://{user}:{password}@{HOST}{rest}"
    shown = f"http://{HOST}{rest}"
    assert password_of(uri) == password
    assert shown_uri(uri) == shown
    assert shown_uri(uri.removeprefix("http://")) == f"{HOST}{rest}"
    told = f"Failed to parse {uri} because of {uri}, twice."
    assert without_credentials(told) == f"Failed to parse {shown} because of {shown}, twice."
    line = f"python\0--tracking-uri={uri}\0me@home\0".encode()
    stars = "*" * len(f"{user}:{password}".encode())
    assert masked(line) == f"python\0--tracking-uri=http://{stars}@{HOST}{rest}\0me@home\0".encode()


@given(USERS, PASSWORDS)
@examples(50)
def test_every_place_that_takes_an_address_hides_the_password(user: str, password: str) -> None:
    """Each shows the address, or refuses it in a sentence without the password."""
    uri, store = f"http://{user}:{password}@{HOST}", f"s3://{user}:{password}@bucket/runs"
    resumption = Resumption("reproduce", RunRequest(Storage(Path("runs")), uri))
    assert f"http://{HOST}" in resumption.command_line()
    assert password not in resumption.command_line()
    with pytest.raises(ValueError, match="must be a dashboard's") as refused:
        Jobs(uri)
    assert refused.match(f"http://{HOST}")
    assert password not in str(refused.value)
    with pytest.raises(ValueError, match="must be without passwords and keys, but that of s3://bucket") as refused:
        check_address(store)
    assert password not in str(refused.value)
    with pytest.raises(ValueError, match="An address with a password") as refused:
        parcel(["grid", "--space", "toy_elk", "--tracking-uri", uri], "/shared", "")
    assert password not in str(refused.value)
    if set("/?#") & set(password):
        with pytest.raises(ValueError, match=f"The password for http://{HOST} must have %2F") as refused:
            Store(uri)
        assert password not in str(refused.value)
    else:
        assert Store(uri).shown_uri == f"http://{HOST}"
        told = Store(uri)._told(StoreError(f"{uri}/api and {password}"))
        assert told == f"http://{HOST}/api and ***"


def test_errors_of_commands_are_without_it(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PCL_TRACEBACK", "1")
    error = ValueError("no answer from http://me:se/cr@et@host:5000/team")
    with pytest.raises(SystemExit):
        _leave(error, str(error), 2)
    said = capsys.readouterr().err
    assert said.count("http://host:5000/team") == 2
    assert "et@" not in said


@pytest.mark.parametrize(
    "address",
    [
        "http://host:5000/team@home", "http://host:5000?user=me@home", "http://host/team@home", "s3://bucket/a:b@c",
        "sqlite:////home/me@home/mlflow.db", "sqlite:////home:1/me@home/mlflow.db", "http://[::1]:5000/team@home",
    ],
)  # fmt: skip
def test_an_at_sign_behind_the_host_is_none(address: str) -> None:
    assert shown_uri(address) == without_credentials(address) == address
    assert password_of(address) == ""
    assert masked(address.encode()) == address.encode()


def test_a_user_alone_is_hidden_but_no_password() -> None:
    assert shown_uri("https://token@host/a") == "https://host/a"
    assert password_of("abfs://box@account.example/runs") == ""
