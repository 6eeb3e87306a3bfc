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
_WIDTHS = {
    "verdict": 90,
    "symptom": 140,
    "stage": 90,
    "onset": 60,
    "seed": 50,
    "implied": 90,
}
_SETTING_WIDTH = 120
_FINAL = "metrics.`final/pass_rate`"
_CHARTS = {
    "learning": ("eval/pass_rate", "reward/pass_rate", "reward/mean"),
    "policy": ("train/entropy", "kl/reference", "train/length_mean"),
    "optimization": ("train/loss", "train/grad_norm", "ratio/clip_fraction"),
    "reward signal": (
        "signal/normalized_fidelity",
        "signal/advantage_fidelity",
        "signal/advantage_silent",
    ),
}
"""Sections of the page of curves; three charts fill a row."""
_FOLDED = ("eval", "final", "initial", "kl", "ratio", "reward", "signal", "train")


def saved_views(settings: tuple[str, ...], configurations: tuple[str, ...]) -> tuple[View, ...]:
    """Verdicts, curves by configuration, and failing runs.

    Args:
        settings: Dotted keys of the settings that differ between trials; a column each.
        configurations: Names of the sweep's configurations; a line each.
    """
    widths = {f"params.`{key}`": _SETTING_WIDTH for key in settings}
    widths |= {f"tags.`{key}`": width for key, width in _WIDTHS.items()} | {_FINAL: 100}
    columns = [*widths]
    # What moves to the front is what the eye looks for; the page would sort metrics before tags.
    order = ["tags.`verdict`", "tags.`symptom`", "tags.`stage`", _FINAL, *columns]
    table = _page(TRIALS_ONLY, "tags.`verdict`") | {
        "selectedColumns": columns,
        "columnOrder": list(dict.fromkeys(order)),
        "columnWidths": widths,
    }
    failing = table | {"searchFilter": f"{TRIALS_ONLY} AND tags.verdict = 'unhealthy'"}
    return (
        View("verdicts", "Verdicts", "TABLE", table),
        View("curves", "Curves by configuration", "CHART", _curves(configurations)),
        View("failing", "Failing", "TABLE", failing | {"orderByKey": "tags.`symptom`"}),
    )


def view_link(ui: str, experiment: str, view: View) -> str:
    """Address that opens the view in the tracker's pages at `ui`."""
    query = f"compareRunsMode={view.mode}&viewStateShareKey={view.id}&workflowType=machine_learning"
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


def _curves(configurations: tuple[str, ...]) -> dict[str, Any]:
    """One line per configuration, averaged over its seeds; what matters most on top."""
    sections = [_section(name, shown=True) for name in _CHARTS]
    folded = [_section(name, shown=False) for name in _FOLDED]
    charts = [_chart(key, name) for name, keys in _CHARTS.items() for key in keys]
    grouping = [{"mode": "tag", "groupByData": "configuration"}]
    few = len(configurations) <= LEGIBLE_LINES
    collapsed = {f"tag.configuration.{name}": False for name in configurations if few}
    return _page(TRIALS_ONLY, "attributes.start_time") | {
        "groupBy": {"aggregateFunction": "average", "groupByKeys": grouping},
        "groupsExpanded": collapsed,
        "useGroupedValuesInCharts": True,
        "runsHiddenMode": "SHOW_ALL" if few else "FIRST_20_RUNS",
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
        "displayPoints": False,
        "yAxisKey": "metric",
        "yAxisExpressions": [],
        "ignoreOutliers": False,
        "useGlobalXaxisKey": True,
        "useGlobalLineSmoothing": True,
    }
