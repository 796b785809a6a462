"""``lint_config``: what in a broker's file does not do what it seems to."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocketstore import ConfigError, lint_config


def codes(text: str, version: str | None = None) -> list[tuple[int | None, str, str]]:
    return [(one.line, one.option, one.code) for one in lint_config(text + "\n", version)]


def test_a_plain_file_has_no_remarks() -> None:
    text = "# c\nbrokerName=a\nbrokerId=0\ndeleteWhen=04;16\nfileReservedTime=48\n"
    assert codes(text) == []
    assert codes(text, "4.9.8") == []


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("flushDiskTyp=SYNC_FLUSH", "unknown"),
        ("flushDiskType=SYNC", "dangerous"),
        ("flushDiskType=sync_flush", "dangerous"),
        ("brokerRole=MASTER", "dangerous"),
        ("brokerRole=SLAVE", "contradicts"),
        ("brokerRole=SLAVE\nbrokerId=0", "contradicts"),
        ("brokerId=1", "ignored"),
        ("listenPort=20000\nhaListenPort=20000", "contradicts"),
        ("haListenPort=10909", "contradicts"),
        ("mappedFileSizeCommitLog=1048576", "contradicts"),
        ("mappedFileSizeConsumeQueue=1001", "ignored"),
        ("maxIndexNum=200000000", "dangerous"),
        ("deleteWhen=4am", "dangerous"),
        ("deleteWhen=24", "dangerous"),
        ("fileReservedTime=0", "dangerous"),
        ("fileReservedTime=three", "ignored"),
        ("fileReservedTime=3 ", "ignored"),
        ("diskMaxUsedSpaceRatio=99", "ignored"),
        ("diskSpaceWarningLevelRatio=80", "contradicts"),
        ("checkCRCOnRecover=false", "dangerous"),
        ("transientStorePoolEnable=true", "dangerous"),
        ("transientStorePoolEnable=true\nflushDiskType=SYNC_FLUSH", "contradicts"),
        ("messageIndexEnable=false", "dangerous"),
        ("messageIndexEnable=yes", "dangerous"),
        ("enableLmq=true", "contradicts"),
        ("enableDLegerCommitLog=true", "contradicts"),
        ("namesrvAddr=10.0.0.1:9876,10.0.0.2:9876", "dangerous"),
        ("mapedFileSizeCommitLog=1073741824", "renamed"),
        ("file_reserved_time=24", "renamed"),
        ("putMessageTimeout=1", "ignored"),
        ("storePathRootDir=$HOME/store", "dangerous"),
    ],
)
def test_each_kind_of_remark(text: str, code: str) -> None:
    assert code in [found for _, _, found in codes(text)]


def test_a_repeated_key_is_reported_where_it_is_overridden() -> None:
    text = "fileReservedTime=24\nfileReservedTime=48\nbrokerName=a\nbrokerName=a"
    assert codes(text) == [
        (1, "fileReservedTime", "contradicts"),
        (3, "brokerName", "ignored"),
    ]


def test_a_key_of_another_version() -> None:
    assert codes("timerWheelEnable=true") == []
    (remark,) = lint_config("timerWheelEnable=true\n", "4.9.8")
    assert remark.code == "unknown"
    assert "from 5.0.0" in remark.reason
    (remark,) = lint_config("haSlaveFallbehindMax=1\n", "5.3.3")
    assert remark.code == "renamed"
    assert "haMaxGapNotInSync" in remark.reason
    assert codes("haSlaveFallbehindMax=1", "4.9") == []


def test_what_no_broker_reads_contradicts_nothing() -> None:
    assert [code for *_, code in codes("mapedFileSizeCommitLog=65536")] == ["renamed"]


def test_files_that_opening_refuses_are_read(tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    peers = "dLegerGroup=g\ndLegerPeers=n0-127.0.0.1:1\ndLegerSelfId=n0\nbrokerId=2\n"
    path.write_bytes(b"\xef\xbb\xbfa=b\nenableDLegerCommitLog=true\n" + peers.encode())
    found = lint_config(path)
    assert "byte order mark" in found[0].reason
    assert {one.code for one in found} == {"unknown"}


@pytest.mark.parametrize("version", ["", "5", "x.y.z", "5.3.3.1", "-1.0.0"])
def test_no_version(version: str) -> None:
    with pytest.raises(ConfigError, match="is no version"):
        lint_config("a=b\n", version)


def test_what_is_no_configuration(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="NUL"):
        lint_config(b"a=\0\n")
    with pytest.raises(FileNotFoundError):
        lint_config(tmp_path / "none.conf")
