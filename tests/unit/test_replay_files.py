import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import typer
from safetensors.torch import save_file
from typer.testing import CliRunner

from grpo_core.config import TrialConfig
from grpo_core.errors import ConfigError
from grpo_core.rollout import RolloutBatch
from sweeps.replay.command import replay_command
from sweeps.replay.files import HEADER, load_safetensors, record_rollout
from sweeps.replay.foreign import LINE_FIELDS, load_recording
from sweeps.replay.recording import PER_ANSWER, PER_TOKEN, first_groups

MASK = torch.tensor([[False, True, False], [False, True, True], [True, False, False]])


def rollout() -> RolloutBatch:
    return RolloutBatch(
        ids=torch.zeros(3, 3, dtype=torch.long),
        loss_mask=MASK,
        lengths=torch.tensor([3, 3, 2]),
        answer_lengths=torch.tensor([1, 2, 1]),
        truncated=torch.tensor([False, True, False]),
        behaviour_logprobs=torch.where(MASK, -0.5, 0.0),
        entropy=torch.zeros(3, 3),
        rewards=torch.tensor([1.0, 0.0, 1.0]),
        passed=torch.tensor([True, False, True]),
        group_sizes=torch.tensor([2, 1]),
        version=4,
        prompts=(),
        answers=(),
    )


ARRAYS: dict[str, Any] = {
    "rewards": np.array([1.0, 0.0, 1.0]),
    "group_ids": np.array([0, 0, 1]),
    "logprobs": np.where(MASK.numpy(), -0.5, 0.0),
    "mask": MASK.numpy(),
}


def write_npz(path: Path, **changes: object) -> Path:
    arrays = {k: v for k, v in (ARRAYS | changes).items() if v is not None}
    np.savez(path, **arrays)
    return path


def problems(path: Path) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load_recording(path)
    return [problem.removeprefix(f"{path}: ") for problem in caught.value.problems]


def test_what_was_recorded_is_what_is_read(tmp_path: Path) -> None:
    batch = rollout()
    reference = torch.where(MASK, -0.7, 0.0)
    path = tmp_path / "step0.safetensors"
    kept = record_rollout(batch, reference, path, config=TrialConfig(), current_version=5)
    assert kept.said == f"recorded {path}"
    recording = load_recording(tmp_path)
    experience = recording.recorded.experience
    assert torch.equal(experience.rewards, batch.rewards)
    assert torch.equal(experience.behaviour_logprobs, batch.behaviour_logprobs)
    assert torch.equal(experience.loss_mask, MASK)
    assert experience.reference_logprobs is not None
    assert torch.equal(experience.reference_logprobs, reference)
    assert experience.group_sizes is not None
    assert experience.group_sizes.tolist() == [2, 1]
    assert experience.truncated.tolist() == [False, True, False]
    assert experience.lengths.tolist() == [3, 3, 2]
    assert experience.current_version == 5
    assert not recording.recorded.fresh
    assert recording.recorded.task == TrialConfig().task
    assert recording.config == TrialConfig().model_dump(mode="json")


def test_a_folder_keeps_the_newest_within_its_limit(tmp_path: Path) -> None:
    paths = [tmp_path / f"{i}.safetensors" for i in range(3)]
    for i, path in enumerate(paths[:2]):
        record_rollout(rollout(), None, path)
        os.utime(path, (i, i))
    size = paths[0].stat().st_size
    kept = record_rollout(rollout(), None, paths[2], most_megabytes=2.5 * size / 1e6)
    assert kept.dropped == (paths[0],)
    assert "dropped the oldest to make room: 0.safetensors" in kept.said
    assert sorted(tmp_path.iterdir()) == paths[1:]


def test_a_truncated_recording_says_so(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    record_rollout(rollout(), None, path)
    whole = path.read_bytes()
    path.write_bytes(whole[:-10])
    assert problems(path) == [f"is truncated: {len(whole) - 10} bytes, wanted {len(whole)}"]
    path.write_bytes(whole[:20])
    assert problems(path) == ["is truncated (or no safetensors file): it has 20 bytes"]


def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    save_file({"rewards": torch.zeros(1)}, path, {HEADER: json.dumps({"format_version": 2})})
    (problem,) = problems(path)
    assert problem == "has format version 2; this release reads up to 1, a newer one wrote it"


def test_a_tensor_that_the_header_lists_must_be_there(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    tensors = {"logprobs": {"shape": [3, 3]}, "rewards": {"shape": [3]}}
    header = {"format_version": 1, "tensors": tensors}
    save_file({"rewards": torch.zeros(2)}, path, {HEADER: json.dumps(header)})
    assert problems(path) == [
        "tensor logprobs is missing, though the header lists it with shape [3, 3]",
        "tensor rewards has shape [2], wanted [3] as its header says",
    ]


def test_other_safetensors_are_not_rollouts(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    save_file({"weight": torch.zeros(1)}, path)
    with pytest.raises(ConfigError, match="without the header"):
        load_safetensors(path)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param(
            {"rewards": None, "group_ids": None},
            [
                "tensor rewards is missing; wanted rewards, logprobs, mask, group_ids",
                "tensor group_ids is missing; wanted rewards, logprobs, mask, group_ids",
            ],
            id="missing",
        ),
        pytest.param(
            {"mask": np.ones((3, 4)), "rewards": np.zeros(2)},
            [
                "tensor rewards has shape [2], wanted [3] as logprobs [3, 3]",
                "tensor mask has shape [3, 4], wanted [3, 3] as logprobs [3, 3]",
            ],
            id="shapes",
        ),
        pytest.param(
            {"rewards": np.array([1.0, np.nan, np.nan])},
            ["tensor rewards holds nan (first at row 1; 2 in all)"],
            id="nan-reward",
        ),
        pytest.param(
            {"values": np.array([[np.nan, 0, 0], [0, 0, np.inf], [0, 0, 0]])},
            ["tensor values holds inf (first at row 1, position 2; 1 in all)"],
            id="infinity-inside-the-mask-only",
        ),
        pytest.param(
            {"logprobs": np.where(MASK.numpy(), 0.5, 0.0)},
            ["tensor logprobs holds 0.5 at row 0, position 1; log-probs are at most 0"],
            id="probabilities",
        ),
        pytest.param(
            {"mask": np.zeros((3, 3))},
            ["tensor mask is false everywhere: no token is trained on"],
            id="nothing-trained",
        ),
        pytest.param(
            {"format_version": 2},
            ["format_version 2; this release reads up to 1"],
            id="newer",
        ),
        pytest.param(
            {"alignment": "left"},
            ["alignment: got 'left', wanted prediction or token"],
            id="alignment",
        ),
    ],
)
def test_every_problem_of_an_npz_at_once(
    changes: dict[str, object], expected: list[str], tmp_path: Path
) -> None:
    assert problems(write_npz(tmp_path / "a.npz", **changes)) == expected


def test_a_truncated_npz_says_so(tmp_path: Path) -> None:
    path = write_npz(tmp_path / "a.npz")
    path.write_bytes(path.read_bytes()[:100])
    assert problems(path)[0].startswith("is truncated or no npz of plain arrays")


def test_groups_are_put_together_in_order_of_their_first_row(tmp_path: Path) -> None:
    path = write_npz(tmp_path / "a.npz", group_ids=np.array([7, 3, 7]))
    recording = load_recording(path)
    assert recording.recorded.experience.rewards.tolist() == [1.0, 1.0, 0.0]
    assert recording.recorded.experience.group_sizes is not None
    assert recording.recorded.experience.group_sizes.tolist() == [2, 1]
    assert "rows were sorted by group" in recording.notes
    part = first_groups(recording, 1)
    assert part.recorded.experience.rewards.tolist() == [1.0, 1.0]
    assert part.notes[-1] == "the first 1 of 2 groups"


def test_token_aligned_arrays_are_shifted_to_their_predictions(tmp_path: Path) -> None:
    mask = np.array([[False, True, True]] * 3)
    logprobs = np.array([[0.0, -1.0, -2.0]] * 3)
    path = write_npz(tmp_path / "a.npz", mask=mask, logprobs=logprobs, alignment="token")
    experience = load_recording(path).recorded.experience
    assert experience.loss_mask[0].tolist() == [True, True, False]
    assert experience.behaviour_logprobs[0].tolist() == [-1.0, -2.0, 0.0]
    assert experience.lengths.tolist() == [3, 3, 3]


def test_lines_of_different_length_are_padded(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    lines = [
        {"format_version": 1, "current_version": 3},
        {"reward": 1, "group": "b", "logprobs": [-1.0, -2.0], "versions": [3, 3]},
        {"reward": 0.5, "group": "a", "logprobs": [-3.0], "versions": [2]},
    ]
    path.write_text("\n".join(map(json.dumps, lines)))
    experience = load_recording(path).recorded.experience
    # two tokens and the column behind the last prediction
    assert experience.loss_mask.tolist() == [[True, True, False], [True, False, False]]
    assert experience.behaviour_logprobs.tolist() == [[-1.0, -2.0, 0.0], [-3.0, 0.0, 0.0]]
    assert experience.versions is not None
    assert experience.versions.tolist() == [[3, 3, -1], [2, -1, -1]]
    assert experience.current_version == 3


def test_every_wrong_line_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(
        '{"reward": 1, "group": 0, "logprobs": [-1.0]}\n'
        '{"reward": "x", "group": 0, "logprobs": [-1.0], "mask": [1, 1]}\n'
        '{"group": 0, "logprobs": [-1.0], "adv": 3}\n'
        '{"reward": 1, "gro'
    )
    found = problems(path)
    assert found[0].startswith("line 4 is truncated or no JSON")
    assert found[1:] == [
        "line 2: has mask, which the first answer lacks",
        "line 2: reward: got 'x', wanted a number",
        "line 2: mask: got 2 entries, wanted 1 numbers as in logprobs",
        f"line 3: no such field adv; wanted some of {', '.join(LINE_FIELDS)}",
        "line 3: field reward is missing",
    ]


def test_every_array_has_a_field_of_a_line() -> None:
    assert set(LINE_FIELDS.values()) == {*PER_ANSWER, *PER_TOKEN}


@pytest.mark.parametrize("name", ["a.pt", "missing.npz"])
def test_files_that_are_none(name: str, tmp_path: Path) -> None:
    if name == "a.pt":
        (tmp_path / name).touch()
    (problem,) = problems(tmp_path / name)
    assert "wanted .safetensors, .jsonl, .npz" in problem or "no such file" in problem


def run(*arguments: str) -> Any:  # noqa: ANN401 - a type of typer's inside
    app = typer.Typer()
    app.command()(replay_command)
    return CliRunner().invoke(app, arguments)


SPACE = "base: {gconfig: {n_samples: 1}, actor: {kl_ctl: 0.0}}\nspace: {actor.reward_clip: [1, 0]}"


def test_the_command_prints_json_of_every_cell(tmp_path: Path) -> None:
    rollouts = write_npz(tmp_path / "a.npz")
    (tmp_path / "space.yaml").write_text(SPACE)
    done = run(str(rollouts), "--space", str(tmp_path / "space.yaml"), "--json")
    document = json.loads(done.stdout)
    assert [cell["verdict"] for cell in document["cells"]] == ["live", "dead"]
    assert document["counts"]["dead"] == 1
    table = run(str(rollouts), "--space", str(tmp_path / "space.yaml"))
    assert "reward_clip=0" in table.stdout
    assert "dead (proven)" in table.stdout


def test_problems_of_both_files_come_at_once(tmp_path: Path) -> None:
    rollouts = write_npz(tmp_path / "a.npz", rewards=None)
    (tmp_path / "space.yaml").write_text("space: {actor.kl_clt: [0]}")
    failed = run(str(rollouts), "--space", str(tmp_path / "space.yaml"))
    assert isinstance(failed.exception, ConfigError)
    assert "tensor rewards is missing" in failed.exception.problems[0]
    assert "kl_clt" in failed.exception.problems[1]
