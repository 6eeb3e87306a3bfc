"""Saved views: the sweep's page as it should open.

MLflow keeps a view as an experiment tag with the state of its page as JSON; the state's names are
those of the page itself (MLflow 3.15 and later).
"""

from typing import Any

from sweeps.tracking.base import View

TRIALS_ONLY = "tags.kind = 'trial'"
"""Keeps the summary's run out of a view."""
LEGIBLE_LINES = 30
"""With more configurations than that, charts open with the first 20 lines."""
_COLUMNS = ("verdict", "symptom", "stage", "onset", "seed")
_CHARTS = {
    "learning": ("eval/pass_rate", "reward/pass_rate", "reward/mean", "reward/std"),
    "policy": ("train/entropy", "kl/reference", "train/length_mean", "train/truncated"),
    "optimization": ("train/loss", "train/grad_norm", "ratio/clip_fraction", "ratio/max"),
    "reward signal": (
        "signal/raw_fidelity",
        "signal/normalized_fidelity",
        "signal/advantage_fidelity",
        "signal/advantage_silent",
    ),
}
_FOLDED = ("eval", "final", "initial", "kl", "ratio", "reward", "signal", "train")


def saved_views(settings: tuple[str, ...], configurations: int) -> tuple[View, ...]:
    """Verdicts, curves by configuration, and failing runs, for a sweep over these settings."""
    columns = [f"params.`{key}`" for key in settings] + [f"tags.`{key}`" for key in _COLUMNS]
    table = _page(TRIALS_ONLY, "tags.`verdict`") | {
        "selectedColumns": [*columns, "metrics.`final/pass_rate`"]
    }
    failing = table | {"searchFilter": f"{TRIALS_ONLY} AND tags.verdict = 'unhealthy'"}
    return (
        View("verdicts", "Verdicts", "TABLE", table),
        View("curves", "Curves by configuration", "CHART", _curves(configurations)),
        View("failing", "Failing", "TABLE", failing | {"orderByKey": "tags.`symptom`"}),
    )


def view_link(ui: str, experiment: str, view: View) -> str:
    """Address that opens the view in the tracker's pages at `ui`."""
    query = f"compareRunsMode={view.mode}&viewStateShareKey={view.id}"
    return f"{ui.rstrip('/')}/#/experiments/{experiment}/runs?{query}"


def _page(search: str, order: str) -> dict[str, Any]:
    return {
        "searchFilter": search,
        "orderByKey": order,
        "orderByAsc": True,
        "startTime": "ALL",
        "lifecycleFilter": "Active",
        "datasetsFilter": [],
        "modelVersionFilter": "All Runs",
    }


def _curves(configurations: int) -> dict[str, Any]:
    """One line per configuration, averaged over its seeds; what matters most on top."""
    sections = [_section(name, shown=True) for name in _CHARTS]
    folded = [_section(name, shown=False) for name in _FOLDED]
    charts = [_chart(key, name) for name, keys in _CHARTS.items() for key in keys]
    grouping = [{"mode": "tag", "groupByData": "configuration"}]
    return _page(TRIALS_ONLY, "attributes.start_time") | {
        "groupBy": {"aggregateFunction": "average", "groupByKeys": grouping},
        "useGroupedValuesInCharts": True,
        "runsHiddenMode": "SHOW_ALL" if configurations <= LEGIBLE_LINES else "FIRST_20_RUNS",
        "hideEmptyCharts": True,
        "isAccordionReordered": True,
        "compareRunSections": sections + folded,
        "compareRunCharts": charts,
    }


def _section(name: str, *, shown: bool) -> dict[str, Any]:
    return {
        "uuid": f"section-{name}",
        "name": name,
        "display": shown,
        "isReordered": False,
        "deleted": False,
        "isGenerated": True,
    }


def _chart(key: str, section: str) -> dict[str, Any]:
    return {
        "type": "LINE",
        "uuid": f"chart-{key}",
        "metricSectionId": f"section-{section}",
        "deleted": False,
        "isGenerated": True,
        "runsCountToCompare": 10,
        "metricKey": key,
        "displayName": key,
        "lineSmoothness": 0,
        "xAxisScaleType": "linear",
        "scaleType": "linear",
        "range": {},
        "xAxisKey": "step",
        "selectedXAxisMetricKey": "",
        "yAxisKey": "metric",
        "yAxisExpressions": [],
        "ignoreOutliers": False,
        "useGlobalXaxisKey": True,
        "useGlobalLineSmoothing": True,
    }
