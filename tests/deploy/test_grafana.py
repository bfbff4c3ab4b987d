"""The dashboard for Grafana: its queries ask for metrics, labels and events that a peer has."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Process, wait_until
from tests.peer.web.test_service import address_in, called

DASHBOARD = json.loads((Path(__file__).resolve().parents[2] / "deploy" / "grafana.json").read_text(encoding="utf-8"))
PANELS: list[dict[str, Any]] = DASHBOARD["panels"]
QUERIES = [target["expr"] for panel in PANELS for target in panel["targets"]]
QUERIES.append(DASHBOARD["templating"]["list"][1]["query"])
METRIC = re.compile(r"\bringmq_\w+")
OF_PROMETHEUS = {"instance"}
"""Labels that Prometheus adds."""


@pytest.fixture(scope="module")
def metrics(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The page of a real peer with a neighbour."""
    line = ("peer", "--overlay", "127.0.0.1:0", "--mqtt", "127.0.0.1:0", "--timing", "local", "--no-discovery")
    first = Process([*line, "--http", "127.0.0.1:0"], tmp_path_factory.mktemp("first"))
    second = None
    try:
        overlay = first.says("active: ").rpartition(" ")[2]
        second = Process([*line, "--join", overlay], tmp_path_factory.mktemp("second"))
        second.says("active: ")
        address = address_in(first, "serving HTTP")
        return wait_until(lambda: _with_links(called(address, "GET", "/metrics")[1]))
    finally:
        for process in (first, second):
            if process is not None:
                process.popen.kill()
                process.popen.wait(10)


def _with_links(page: str) -> str:
    """The page once there is a link; empty before."""
    return page if "ringmq_link_round_trip_seconds{" in page else ""


@pytest.mark.parametrize("query", QUERIES)
def test_queries_ask_for_what_there_is(metrics: str, query: str) -> None:
    names = METRIC.findall(query)
    assert names
    for name in names:
        assert re.search(rf"(?m)^{name}[ {{]", metrics), f"no metric {name}"
        for label in set(re.findall(r'(\w+)=~?"', query)) - OF_PROMETHEUS:
            assert re.search(rf'(?m)^{name}\{{.*{label}="', metrics), f"{name} has no label {label}"
    for event in re.findall(r'event="(\w+)"', query):
        assert f'event="{event}"' in metrics


def test_panels_do_not_overlap_and_have_titles() -> None:
    cells: set[tuple[int, int]] = set()
    for panel in PANELS:
        place = panel["gridPos"]
        right, bottom = place["x"] + place["w"], place["y"] + place["h"]
        own = {(x, y) for x in range(place["x"], right) for y in range(place["y"], bottom)}
        assert not own & cells, panel["title"]
        assert right <= 24
        cells |= own
    titles = [panel["title"] for panel in PANELS]
    assert len(set(titles)) == len(titles)
    assert len({panel["id"] for panel in PANELS}) == len(PANELS)
