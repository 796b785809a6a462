"""Tables that RocketMQ reads without a word, and those with which it does not start.

Each was given to the managers of 4.9.8, 5.1.4, 5.3.3, 5.4.0 and 5.5.0. A value that does not fit
its Java type was a sound table, and a number in quotes or true for 1 must not become a broken one.
Tables that 4.9 does not have are judged as those of 5.x.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from golden import golden_stores
from rocketstore.config_managers import json_dialect
from rocketstore.dialect import Dialect
from rocketstore.verify.beside.judgement import Judgement
from rocketstore.verify.beside.tables import BrokerTables
from support.command_line import run

ALL = ("4.9.8", "5.3.3", "5.5.0")
FIVE = ("5.3.3", "5.5.0")
TOPIC = '{"topicConfigTable":{"T":{"topicName":"T",%s}}}'
GROUP = '{"subscriptionGroupTable":{"g":{"groupName":"g",%s}}}'
OFFSETS = '{"offsetTable":{"T@g":{%s}}}'
FILTERS = '{"filterDataByTopic":%s}'
ORDERS = '{"table":%s}'

#: File, content, and which versions refuse it.
TABLES: list[tuple[str, str, tuple[str, ...]]] = [
    *(
        ("topics.json", TOPIC % field, refusing)
        for field, refusing in (
            ('"readQueueNums":99999999999', ALL),
            ('"perm":2147483648', ALL),
            ('"perm":2147483647', ()),
            ('"perm":-2147483649', ALL),
            ('"perm":"2147483648"', ALL),
            ('"perm":"6"', ()),
            ('"perm":"x"', ALL),
            ('"perm":""', ()),
            ('"perm":null', ()),
            ('"perm":true', ()),
            ('"perm":6.5', ()),
            ('"perm":{}', ("4.9.8", "5.3.3")),
            ('"perm":[]', ALL),
            ('"topicFilterType":7', ALL),
            ('"topicFilterType":1', ()),
            ('"topicFilterType":"NONE_SUCH"', ()),
            ('"topicFilterType":true', ALL),
            ('"order":"Y"', ()),
            ('"order":"maybe"', ALL),
            ('"order":5', ()),
            ('"order":{}', ALL),
            ('"attributes":[1]', FIVE),
            ('"attributes":{"a":null,"b":5}', ()),
            ('"attributes":null', ()),
            ('"topicName":{"a":[]}', ()),
            ('"newer":{"a":[]}', ()),
        )
    ),
    ("topics.json", '{"topicConfigTable":{"T":null}}', ALL),
    ("topics.json", '{"topicConfigTable":{},"dataVersion":{"counter":null}}', ALL),
    ("topics.json", '{"topicConfigTable":{},"dataVersion":{"counter":"7"}}', ()),
    ("topics.json", '{"topicConfigTable":{},"dataVersion":{"stateVersion":"x"}}', FIVE),
    *(
        ("subscriptionGroup.json", GROUP % field, refusing)
        for field, refusing in (
            ('"retryQueueNums":2147483648', ALL),
            ('"brokerId":2147483648', ()),
            ('"brokerId":9223372036854775808', ALL),
            ('"groupSysFlag":1099511627776', FIVE),
            ('"consumeTimeoutMinute":1099511627776', FIVE),
            ('"groupRetryPolicy":5', FIVE),
            ('"groupRetryPolicy":null', ()),
            ('"groupRetryPolicy":{"type":"EXPONENTIAL","exponentialRetryPolicy":5}', FIVE),
            ('"groupRetryPolicy":{"customizedRetryPolicy":{"next":["x"]}}', FIVE),
            ('"groupRetryPolicy":{"customizedRetryPolicy":{"next":[1000,"5000"]}}', ()),
            ('"subscriptionDataSet":[1]', FIVE),
            ('"subscriptionDataSet":["x"]', FIVE),
            ('"subscriptionDataSet":[{"topic":"T","version":1}]', ()),
        )
    ),
    ("subscriptionGroup.json", '{"forbiddenTable":{"g":null}}', FIVE),
    ("subscriptionGroup.json", '{"forbiddenTable":{"g":{"T":null}}}', FIVE),
    ("subscriptionGroup.json", '{"forbiddenTable":{"g":{"T":3}}}', ()),
    ("subscriptionGroup.json", '{"forbiddenTable":null}', ()),
    ("consumerOffset.json", OFFSETS % '0:9223372036854775807,"1":"5",-1:true', ()),
    ("consumerOffset.json", OFFSETS % "0:9223372036854775808", ALL),
    ("consumerOffset.json", OFFSETS % "0:null", ALL),
    ("consumerOffset.json", OFFSETS % '"x":1', ALL),
    ("consumerOffset.json", OFFSETS % "2147483648:1", ALL),
    ("consumerOffset.json", '{"groupTopicMap":5}', FIVE),
    ("consumerOffset.json", '{"groupTopicMap":{"g":["T"]}}', ()),
    ("consumerOffset.json", '{"pullOffsetTable":{"T@g":{"0":"x"}}}', ("5.5.0",)),
    ("lmqConsumerOffset.json", '{"lmqOffsetTable":{"k":null}}', ALL),
    ("delayOffset.json", '{"offsetTable":{"1":null}}', ALL),
    ("delayOffset.json", '{"offsetTable":{"1":7},"dataVersion":null}', ()),
    ("consumerFilter.json", FILTERS % '{"T":null}', ALL),
    ("consumerFilter.json", FILTERS % '{"T":{"groupFilterData":null}}', ALL),
    ("consumerFilter.json", FILTERS % '{"T":{"groupFilterData":{"g":null}}}', ALL),
    ("consumerFilter.json", FILTERS % '{"T":{"groupFilterData":{"g":{"bornTime":"x"}}}}', ALL),
    ("consumerFilter.json", FILTERS % '{"T":{"groupFilterData":{"g":{"dead":7}}}}', ()),
    ("consumerOrderInfo.json", ORDERS % '{"T@g":5}', ALL),
    ("consumerOrderInfo.json", ORDERS % '{"T@g":{"0":5}}', ALL),
    ("consumerOrderInfo.json", ORDERS % '{"T@g":{"0":null}}', ALL),
    ("consumerOrderInfo.json", ORDERS % '{"T@g":{"x":{}}}', ALL),
    ("consumerOrderInfo.json", ORDERS % '{"T@g":{"0":{"o":[1,2],"ot":{"1":2},"cm":3}}}', ()),
    ("timermetrics", '{"timingCount":{"T":{"count":"x"}}}', ALL),
    ("topicQueueMapping.json", '{"topicQueueMappingInfoMap":{"T":{"dirty":{}}}}', ALL),
    # How it is written.
    ("consumerOffset.json", OFFSETS % "0:1,,1:2", ("5.5.0",)),
    ("consumerOffset.json", OFFSETS % "0:1,", ()),
    ("consumerOffset.json", '{,"offsetTable":{}}', ("5.5.0",)),
    ("consumerOffset.json", "{offsetTable:{}}", ("5.5.0",)),
    ("consumerOffset.json", "{'offsetTable':{'T@g':{0:1}}}", ()),
    ("consumerOffset.json", '{/*a*/"offsetTable":{}} // b', ()),
    ("topics.json", TOPIC % '"perm":6,,"order":true', ("5.5.0",)),
]  # fmt: skip


def judged(root: Path, version: str | None) -> list[Judgement]:
    tables = BrokerTables(root)
    tables.dialect = None if version is None else Dialect.for_version(version)
    return [one for one in tables.judge_files() if one.is_finding]


@pytest.mark.parametrize(("name", "content", "refusing"), TABLES)
def test_what_is_refused(
    tmp_path: Path, name: str, content: str, refusing: tuple[str, ...]
) -> None:
    path = tmp_path / "config" / name
    path.parent.mkdir()
    for one in (path, path.with_name(f"{name}.bak")):
        one.write_text(content)
    found = {version: judged(tmp_path, version) for version in ALL}
    assert tuple(version for version in ALL if found[version]) == refusing, found
    for version in refusing:
        (one,) = found[version]
        assert (one.kind, one.path) == ("config-table", str(path))
        assert "a broker will not start" in one.reason
    # Where the line is not known, it is broken if none reads it.
    assert bool(judged(tmp_path, None)) == (refusing == ALL)


def test_it_is_a_finding_of_the_store(tmp_path: Path) -> None:
    root = golden_stores.unpack("broker-5.3.3", tmp_path)
    path = root / "config" / "topics.json"
    table = json_dialect.loads(path.read_bytes())
    table["topicConfigTable"]["Mix1"]["perm"] = 2**31
    for one in (path, path.with_name("topics.json.bak")):
        one.write_text(json.dumps(table))
    answer = json.loads(run("verify", root, "--json", code=1).stdout)
    (found,) = answer["findings"]
    assert found["path"] == str(path)
    assert "$.topicConfigTable.Mix1.perm: expected a whole number of 32 bits" in found["reason"]
    facts = json.loads(run("info", root, "-f", "json", code=1).stdout)
    assert [text for text in facts["findings"] if "Mix1.perm" in text]


def test_a_good_backup_is_read_instead(tmp_path: Path) -> None:
    path = tmp_path / "config" / "topics.json"
    path.parent.mkdir()
    path.write_text(TOPIC % '"perm":2147483648')
    path.with_name("topics.json.bak").write_text(TOPIC % '"perm":6')
    assert judged(tmp_path, "5.3.3") == []
