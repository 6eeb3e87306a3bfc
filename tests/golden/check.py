"""Compare our maths with reference values: `python tests/golden/check.py DIR`.

DIR holds indices in the format of the golden reference values: JSON with `cases`, arrays in .npz.
Every case goes through the functions that the trainer calls, with `areal_compat` for AReaL's
sections. Exit status 0: every case is supported and agrees, gradients included.
"""

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from pydantic import ValidationError
from torch import Tensor

ROOT = Path(__file__).resolve().parents[2]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from grpo_core.errors import GrpoError  # noqa: E402
from tests.golden.adapters import Adapter, UnsupportedCaseError  # noqa: E402
from tests.golden.components import COMPONENTS  # noqa: E402
from tests.golden.end_to_end import end_to_end  # noqa: E402
from tests.golden.store import Case, Section, load_sections  # noqa: E402
from tests.golden.trl import constant_rows, trl_grpo  # noqa: E402

ADAPTERS: dict[str, Adapter] = {
    **COMPONENTS,
    "end_to_end": end_to_end,
    "trl_grpo": trl_grpo,
}

ABSOLUTE = 1e-6
"""Differences up to this count as none, beside the relative tolerance."""
ELEMENTWISE = 1e-5
"""Relative tolerance of what is computed element by element."""
SUMMED = 1e-4
"""Relative tolerance behind long recursions and batch-wide sums."""
SUMMED_OUTPUTS = frozenset({"loss", "advantages", "raw_advantages", "returns"})
ROUNDING_TOLERANCE = 1e-2
"""Relative tolerance of cases that rounding dominates; they are listed apart."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one case went."""

    case_id: str
    error: float = 0.0
    """Largest |ours - theirs| / (|theirs| + ABSOLUTE / tolerance) * ELEMENTWISE / tolerance."""
    worst_output: str = ""
    disagreements: tuple[str, ...] = ()
    unsupported: str | None = None
    rounding_dominated: bool = False


@dataclass(frozen=True, slots=True)
class SectionReport:
    """How a section went."""

    name: str
    outcomes: tuple[Outcome, ...] = field(default=())

    @property
    def agrees(self) -> bool:
        """Whether every case is supported and agrees."""
        return all(
            outcome.unsupported is None and not outcome.disagreements for outcome in self.outcomes
        )


def check_section(section: Section) -> SectionReport:
    """Run and compare every case of a section."""
    return SectionReport(section.name, tuple(check_case(case) for case in section.cases))


def check_case(case: Case) -> Outcome:
    """Run one case and compare every output that the reference gives."""
    dominated = rounding_dominated(case)
    adapter = ADAPTERS.get(case.kind)
    if adapter is None:
        return Outcome(case.id, unsupported=f"kind {case.kind}", rounding_dominated=dominated)
    try:
        ours = adapter(case)
    except (UnsupportedCaseError, GrpoError, ValidationError) as reason:
        return Outcome(case.id, unsupported=str(reason), rounding_dominated=dominated)
    missing = [name for name in case.outputs if name not in ours]
    if missing:
        return Outcome(case.id, unsupported=f"output {missing[0]}", rounding_dominated=dominated)
    return compare(case, ours, dominated=dominated)


def compare(case: Case, ours: Mapping[str, Tensor], *, dominated: bool) -> Outcome:
    """Compare all outputs; errors are scaled so that ELEMENTWISE is always the limit."""
    errors = {
        name: relative_error(ours[name], theirs, tolerance_of(name, dominated=dominated))
        for name, theirs in case.outputs.items()
    }
    worst = max(errors, key=errors.__getitem__)
    wrong = tuple(name for name, error in errors.items() if not error <= ELEMENTWISE)
    return Outcome(case.id, errors[worst], worst, wrong, rounding_dominated=dominated)


def tolerance_of(name: str, *, dominated: bool) -> float:
    """Relative tolerance of an output."""
    if dominated and name == "normalized":
        return ROUNDING_TOLERANCE
    return SUMMED if name in SUMMED_OUTPUTS else ELEMENTWISE


def relative_error(ours: Tensor, theirs: Tensor, tolerance: float) -> float:
    """Largest relative error on the scale of ELEMENTWISE; infinite where only one side is NaN.

    |a - b| / (|b| + ABSOLUTE / tolerance) <= tolerance is |a - b| <= ABSOLUTE + tolerance |b|.
    """
    if ours.shape != theirs.shape:
        return torch.inf
    if not theirs.numel():
        return 0.0
    a, b = ours.double(), theirs.double()
    same = (a == b) | (a.isnan() & b.isnan())
    error = torch.where(same, 0.0, (a - b).abs() / (b.abs() + ABSOLUTE / tolerance))
    return float(error.nan_to_num(nan=torch.inf).max()) * ELEMENTWISE / tolerance


def rounding_dominated(case: Case) -> bool:
    """Whether the reference values of a case are mostly float32 rounding."""
    if case.config.get("special") == "tiny_spread":
        return True
    if case.kind != "trl_grpo":
        return False
    residue = case.outputs["advantages"][constant_rows(case)]
    return bool((residue.abs() > ABSOLUTE).any())


def render(report: SectionReport) -> str:
    """Say what a section's check found."""
    supported = [outcome for outcome in report.outcomes if outcome.unsupported is None]
    regular = [outcome for outcome in supported if not outcome.rounding_dominated]
    rounded = [outcome for outcome in supported if outcome.rounding_dominated]
    agreeing = sum(not outcome.disagreements for outcome in supported)
    lines = [f"section {report.name}: {len(report.outcomes)} cases, {agreeing} agree"]
    if regular:
        lines.append(f"  worst relative error {_worst(regular)}")
    reasons = Counter(
        outcome.unsupported for outcome in report.outcomes if outcome.unsupported is not None
    )
    lines.append(f"  unsupported: {sum(reasons.values())}")
    lines += [f"    {count} x {reason}" for reason, count in reasons.most_common()]
    if rounded:
        lines.append(
            f"  dominated by rounding, compared at {ROUNDING_TOLERANCE:g}: {len(rounded)} cases, "
            f"{sum(not outcome.disagreements for outcome in rounded)} agree"
        )
    for outcome in supported:
        if outcome.disagreements:
            names = ", ".join(outcome.disagreements)
            lines.append(f"  DISAGREES {outcome.case_id}: {names} (error {outcome.error:.3g})")
    return "\n".join(lines)


def _worst(outcomes: Sequence[Outcome]) -> str:
    worst = max(outcomes, key=lambda outcome: outcome.error)
    return f"{worst.error:.2e} ({worst.case_id}, {worst.worst_output})"


def main(arguments: Sequence[str]) -> int:
    """Check one folder; 0 if everything agrees, 1 if not, 2 for wrong arguments."""
    if len(arguments) != 1:
        sys.stderr.write("usage: check.py DIR\n")
        return 2
    torch.set_num_threads(1)
    reports = [check_section(section) for section in load_sections(Path(arguments[0]))]
    sys.stdout.write("\n".join(render(report) for report in reports) + "\n")
    return 0 if all(report.agrees for report in reports) else 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
