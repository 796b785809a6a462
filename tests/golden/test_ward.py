"""``doctor`` on damaged stores: its codes, and its forecasts against what RocketMQ did."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from golden.golden_stores import unpack
from rocketstore.config import MessageStoreConfig
from rocketstore.diagnosis.broker import Broker, BrokerOptions, LogContent
from rocketstore.diagnosis.examination import doctor
from rocketstore.diagnosis.image import StoreImage
from rocketstore.directory.checkpoint import StoreCheckpoint
from rocketstore.directory.paths import StorePaths
from support.ward import CASES, case, config_file, damaged


def played(root: Path, recipe: dict[str, Any]) -> Broker:
    """Return the broker of a case, over a store."""
    config = recipe["config"]
    settings = MessageStoreConfig.from_properties(config)
    image = StoreImage(StorePaths.of(root, settings))
    major, minor, patch = map(int, recipe["rocketmq"].split("."))
    has_ext = config.get("enableConsumeQueueExt") == "true"
    options = BrokerOptions(
        (major, minor, patch),
        int(config["mappedFileSizeCommitLog"]),
        int(config["mappedFileSizeConsumeQueue"]),
        int(config["maxHashSlotNum"]),
        int(config["maxIndexNum"]),
        batch_nbytes=int(config.get("mapperFileSizeBatchConsumeQueue", 0)),
        ext_nbytes=int(config["mappedFileSizeConsumeQueueExt"]) if has_ext else 0,
        multi_dispatch=config.get("enableMultiDispatch") == "true",
        delay_ms=settings.delay_ms,
    )
    content = LogContent.read(image, settings.delay_ms)
    checkpoint = StoreCheckpoint.read(root / "checkpoint", root)
    is_unclean = (root / "abort").exists()
    return Broker(image, content, options, checkpoint, is_unclean=is_unclean)


@pytest.mark.parametrize("name", CASES)
def test_the_forecast_is_what_rocketmq_did(name: str, tmp_path: Path) -> None:
    recipe = case(name)
    seen = recipe["store"]
    broker = played(damaged(name, tmp_path), recipe)
    forecast = broker.forecast()
    assert forecast.starts == seen["starts"]
    if not seen["starts"]:
        assert forecast.why
        return
    assert forecast.log == {"min": seen["log"][0], "max": seen["log"][1]}
    assert forecast.deletes == sorted(seen["deletes"])
    assert forecast.hangs_at == seen["hangsAt"]
    assert forecast.keys_not_found == seen["keysNotFound"]
    before = played(unpack(recipe["base"], tmp_path / "before"), recipe)
    before.forecast()
    for queue in seen["queues"]:
        key = queue["topic"], queue["queueId"]
        offsets = queue["offsets"]
        if offsets == "as undamaged":
            offsets = before.served[key][2]
        assert broker.served[key] == (queue["min"], queue["max"], offsets), key


@pytest.mark.parametrize("configured", [True, False], ids=["config", "detected"])
@pytest.mark.parametrize("name", CASES)
def test_each_damage_has_its_code(name: str, configured: bool, tmp_path: Path) -> None:
    recipe = case(name)
    root = damaged(name, tmp_path)
    before = {path: path.stat().st_mtime_ns for path in root.rglob("*")}
    config = config_file(name, tmp_path) if configured else None
    verdict = doctor(root, config=config, broker_versions=[recipe["rocketmq"]])
    assert set(recipe["codes"]) <= set(verdict.counts)
    starts = recipe["store"]["starts"]
    if recipe["broker"] is not None:
        starts = recipe["broker"]["starts"]
    assert verdict.broker[0].starts == starts
    assert (verdict.state == "refuses") == (starts is not True)
    assert {path: path.stat().st_mtime_ns for path in root.rglob("*")} == before


@pytest.mark.parametrize("name", ["torn-tail", "zeroed-page-and-queue-file"])
def test_lost_messages_are_counted(name: str, tmp_path: Path) -> None:
    verdict = doctor(damaged(name, tmp_path))
    assert verdict.data.effect == "lost"
    assert verdict.data.messages == len(case(name)["lost"])
