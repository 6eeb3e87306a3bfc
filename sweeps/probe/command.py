"""`sweeps probe`: does the task give the policy anything to learn from?"""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from sweeps.plan import plan
from sweeps.space import load_space


def probe_command(
    file: Annotated[Path, typer.Argument(help="A search-space file (search_spaces/*.yaml).")],
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Lay a value over the base; repeatable."),
    ] = None,
    prompts: Annotated[int, typer.Option(min=1, help="Prompts to ask.")] = 32,
    device: Annotated[str, typer.Option(help="Where the policy is loaded, e.g. cuda.")] = "cpu",
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Pass rate and silent groups of the initial policy, before a sweep is paid for."""
    planned = plan(load_space(file, tuple(overrides or ())))
    from sweeps.probe.measure import probe, probes_of

    results = [
        probe(config, groups, prompts=prompts, device=device, notify=_say)
        for config, groups in probes_of(cell.config for cell in planned.space.cells)
    ]
    if as_json:
        print(json.dumps([result.to_json() for result in results], indent=1))
        return
    for result in results:
        print(
            f"{result.task} with {result.policy}: {result.prompts} prompts, {result.answers} each"
        )
        print(f"  pass rate        {result.pass_rate:.2f}")
        for group, share in result.silent.items():
            print(f"  silent groups    {share:.0%} expected with {group} answers")
        print(f"  equal rewards    {result.equal_rewards:.0%} of the groups seen")
        print(f"  answers          {result.answer_tokens:.1f} tokens, {result.truncated:.0%} cut")
        print(f"  sampling         {result.seconds:.1f} s")
        for line in (*result.notes, *(f"warning: {text}" for text in result.warnings)):
            print(f"  {line}")


def _say(message: str) -> None:
    print(message, file=sys.stderr)
