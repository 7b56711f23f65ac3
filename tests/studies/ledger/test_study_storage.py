"""Storage is a folder or a store, by its address."""

from pathlib import Path

import pytest

from pcl.storage.object_stores import check_address, copy_of, joined
from pcl.studies.ledger.study_storage import Storage


@pytest.mark.parametrize(
    "address", ["s3://key:secret@bucket/runs", "abfs://box@account.example/runs?client_id=a&client_secret=secret"]
)
def test_secrets_in_addresses_are_refused_and_not_repeated(address: str) -> None:
    with pytest.raises(ValueError, match="must be without passwords and keys") as refused:
        Storage.of(address).check()
    assert ":secret" not in str(refused.value)
    assert "=secret" not in str(refused.value)
    check_address("abfs://box@account.example/runs?tenant_id=a")


def test_storage_is_a_folder_or_a_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PCL_CACHE", str(tmp_path / "copies"))
    assert Storage.of("runs") == Storage(Path("runs"))
    assert Storage.of(f"file://{tmp_path}/a%20b") == Storage(tmp_path / "a b")
    store = Storage.of("s3://bucket/runs/?region=eu-west-1")
    assert str(store) == "s3://bucket/runs/?region=eu-west-1"
    assert store.path == copy_of(str(store))
    assert store.path.parent == tmp_path / "copies"
    assert store.study("s").trial("k").mirror.uri == "s3://bucket/runs/s/trials/k?region=eu-west-1"
    assert joined("gs://bucket", "s") == "gs://bucket/s"
    monkeypatch.delenv("PCL_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    assert copy_of("s3://bucket").parent == tmp_path / "home" / "pcl"
