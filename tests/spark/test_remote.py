"""Spark reads a store in a bucket, from a server of this machine that speaks S3."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto.server import ThreadedMotoServer
from pyspark.errors import PySparkException

from rocketstore.arrow.columns import resolve
from rocketstore.spark import scan
from support import random_stores
from support.message_table import scanned

pytestmark = pytest.mark.xdist_group("spark")

KEYS = {"key": "k", "secret": "s"}


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """The URL of the server."""
    running = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    running.start()
    host, port = running.get_host_and_port()
    yield f"http://{host}:{port}"
    running.stop()


def upload(root: Path, url: str) -> dict[str, Any]:
    """Put the store into the bucket ``logs``; return the options to read it with."""
    client = boto3.client(
        "s3",
        endpoint_url=url,
        aws_access_key_id=KEYS["key"],
        aws_secret_access_key=KEYS["secret"],
        region_name="us-east-1",
    )
    client.create_bucket(Bucket="logs")
    for path in (root / "commitlog").iterdir():
        client.upload_file(str(path), "logs", f"store/commitlog/{path.name}")
    return {**KEYS, "client_kwargs": {"endpoint_url": url, "region_name": "us-east-1"}}


def test_a_store_in_a_bucket(server: str, tmp_path: Path, spark: Any) -> None:
    random_stores.make(tmp_path / "store", 3000, segment_nbytes=1 << 18)
    options = upload(tmp_path / "store", server)
    expected = scanned(tmp_path / "store", resolve("core"))
    read = spark.read.format("rocketstore").option("storageOptions", json.dumps(options))
    found = read.load("s3://logs/store").toArrow()
    assert found.cast(expected.schema).equals(expected)
    found = scan(
        spark, "s3://logs/store/commitlog", storage_options=options, split_bytes=100_000
    ).toArrow()
    assert found.cast(expected.schema).equals(expected)
    with pytest.raises(PySparkException, match="absent"):
        read.load("s3://logs/absent").count()
