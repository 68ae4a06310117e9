from __future__ import annotations

import json
from pathlib import Path

import pytest

from headcount import HeadcountError, HeadMask
from headcount.training.history import Selection, SelectionHistory

LAYOUT = (("encoder.0", 4), ("encoder.1", 4))


def mask(*heads: int) -> HeadMask:
    return HeadMask("bert", LAYOUT, frozenset(heads))


def test_a_history_is_read_as_it_was_written(tmp_path: Path) -> None:
    history = SelectionHistory()
    assert history.record(0, mask(0, 1), 2.0) == 0
    assert history.record(10, mask(0, 5), 0.5) == 1
    assert history.record(10, mask(0, 5), 0.5) == 0
    history.record_metric(10, 0.75)
    history.save(tmp_path / "history.json")
    assert SelectionHistory.load(tmp_path / "history.json") == history
    assert history.selections == [Selection(0, (0, 1), 2.0), Selection(10, (0, 5), 0.5)]


def test_a_history_without_temperatures_and_metrics_is_read(tmp_path: Path) -> None:
    rows = [{"step": 0, "heads": [1, 2]}, {"step": 10, "heads": [1, 3]}]
    path = tmp_path / "history.json"
    path.write_text(json.dumps({"format": "headcount selection history 1", "selections": rows}))
    history = SelectionHistory.load(path)
    assert history.selections == [Selection(0, (1, 2), None), Selection(10, (1, 3), None)]
    assert history.metrics == []


@pytest.mark.parametrize("text", ["no", "[]", '{"selections": [3]}', '{"selections": ["a"]}'])
def test_what_is_no_history_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "history.json").write_text(text)
    with pytest.raises(HeadcountError, match="cannot read a selection history"):
        SelectionHistory.load(tmp_path / "history.json")
