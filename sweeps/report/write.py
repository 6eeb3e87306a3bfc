"""Writes a sweep's report folder."""

import json
from pathlib import Path

from sweeps.record import SweepRecord
from sweeps.report.figures import draw_curves
from sweeps.report.tables import render_markdown
from sweeps.results import Results


def write_report(record: SweepRecord, results: Results) -> Path:
    """Write results.json, results.md and curves.png; the folder."""
    folder = record.report_folder
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "results.json").write_text(json.dumps(results.to_json(), indent=1))
    (folder / "results.md").write_text(render_markdown(results))
    draw_curves(record, results, folder / "curves.png")
    return folder
