import json
import threading
from pathlib import Path

import pytest

from grpo_core.errors import ConfigError, GrpoError
from sweeps.record import StorageError, SweepRecord, TrialEnd
from sweeps.storage import find_sweep, open_sweep, package_version
from tests.full_disk import files_up_to
from tests.sweep_records import make_end, make_record, make_step, make_trial
from tests.sweeps_made import begun, implied_end, planned

SPACE = "space: {actor.kl_ctl: [0.0, 0.1]}\nseeds: 2\n"
TRIAL = make_trial(0.1)


@pytest.fixture
def record(tmp_path: Path) -> SweepRecord:
    return make_record(tmp_path, TRIAL)


def steps_path(record: SweepRecord) -> Path:
    return record.folder / "trials" / f"{TRIAL.id}.jsonl"


def steps_of(record: SweepRecord) -> list[int]:
    return [step.step for step in record.steps(TRIAL.id)]


def test_steps_come_back_as_they_were_recorded(record: SweepRecord) -> None:
    given = [make_step(0), make_step(1, loss=float("nan")), make_step(2, nonfinite="loss")]
    assert record.append_steps(TRIAL.id, given) == 3
    read = record.steps(TRIAL.id)
    assert [step.to_json() for step in read] == [step.to_json() for step in given]


def test_a_step_that_is_reported_again_is_recorded_once(record: SweepRecord) -> None:
    record.append_steps(TRIAL.id, [make_step(0), make_step(1)])
    assert record.append_steps(TRIAL.id, [make_step(0), make_step(1), make_step(2)]) == 1
    assert record.append_steps(TRIAL.id, [make_step(1)]) == 0
    assert steps_of(record) == [0, 1, 2]


def test_another_process_goes_on_where_the_record_ends(record: SweepRecord) -> None:
    record.append_steps(TRIAL.id, [make_step(0), make_step(1)])
    again = SweepRecord(record.folder)
    assert again.append_steps(TRIAL.id, [make_step(step) for step in range(4)]) == 2
    assert steps_of(again) == [0, 1, 2, 3]


@pytest.mark.parametrize("given", [[1], [0, 2], [0, 1, 1], [0, 1, 0]])
def test_a_gap_or_a_disorder_is_refused_and_nothing_is_written(
    record: SweepRecord, given: list[int]
) -> None:
    with pytest.raises(ValueError, match=f"trial {TRIAL.id}: expected step"):
        record.append_steps(TRIAL.id, [make_step(step) for step in given])
    assert steps_of(record) == []


@pytest.mark.parametrize("cut", [1, 20, 300])
def test_a_line_that_a_crash_cut_is_dropped_and_delivered_again(
    record: SweepRecord, cut: int
) -> None:
    record.append_steps(TRIAL.id, [make_step(0), make_step(1)])
    path = record.folder / "trials" / f"{TRIAL.id}.jsonl"
    path.write_bytes(path.read_bytes()[:-cut])
    again = SweepRecord(record.folder)
    assert steps_of(again) == [0]
    assert again.append_steps(TRIAL.id, [make_step(0), make_step(1)]) == 1
    assert steps_of(again) == [0, 1]
    assert path.read_bytes().endswith(b"}\n")


def test_a_file_that_a_crash_left_with_half_a_first_line_starts_over(record: SweepRecord) -> None:
    (record.folder / "trials" / f"{TRIAL.id}.jsonl").write_text('{"step": 0, "rew')
    assert steps_of(record) == []
    assert record.append_steps(TRIAL.id, [make_step(0)]) == 1
    assert steps_of(record) == [0]


@pytest.mark.parametrize("start", [0, 1, 2, 3])
def test_steps_can_be_read_from_one_on(record: SweepRecord, start: int) -> None:
    record.append_steps(TRIAL.id, [make_step(step) for step in range(3)])
    steps_path(record).write_text(steps_path(record).read_text() + '{"step": 3')
    assert [step.step for step in record.steps(TRIAL.id, start)] == list(range(start, 3))


@pytest.mark.parametrize(
    ("lines", "more"),
    [
        pytest.param(0, 0, id="no-room"),
        pytest.param(0, 100, id="part-of-a-line"),
        pytest.param(1, 0, id="one-line"),
        pytest.param(1, 100, id="a-line-and-a-part"),
    ],
)
def test_a_full_disk_is_named_and_costs_nothing_that_was_recorded(
    record: SweepRecord, lines: int, more: int
) -> None:
    record.append_steps(TRIAL.id, [make_step(0)])
    fresh = [make_step(1), make_step(2)]
    sizes = [len(json.dumps(step.to_json())) + 1 for step in (make_step(0), *fresh)]
    with files_up_to(sum(sizes[: 1 + lines]) + more):
        with pytest.raises(StorageError, match="jsonl cannot be written: File too large"):
            record.append_steps(TRIAL.id, fresh)
        # What came through whole may be read; a cut line may not.
        assert steps_of(SweepRecord(record.folder)) == list(range(1 + lines))
    assert record.append_steps(TRIAL.id, fresh) == 2 - lines
    assert steps_of(record) == [0, 1, 2]


def test_an_end_that_a_full_disk_refuses_is_no_end_and_leaves_nothing(record: SweepRecord) -> None:
    before = sorted(path.name for path in (record.folder / "trials").iterdir())
    with files_up_to(40), pytest.raises(StorageError, match="make room, then run the same command"):
        record.finish(TRIAL.id, make_end())
    assert record.end(TRIAL.id) is None
    assert sorted(path.name for path in (record.folder / "trials").iterdir()) == before


def test_a_trial_without_steps_has_none(record: SweepRecord) -> None:
    assert record.steps(TRIAL.id) == []
    assert record.append_steps(TRIAL.id, []) == 0


@pytest.mark.parametrize(
    "end",
    [
        make_end(),
        make_end(outcome="unhealthy"),
        make_end(status="failed", final=None, error="the reward function raised: x"),
        implied_end(),
        implied_end(of="0123456789ab", outcome="healthy"),
    ],
    ids=["healthy", "unhealthy", "failed", "implied-dead", "implied-equal"],
)
def test_an_end_survives_being_written_and_read(record: SweepRecord, end: TrialEnd) -> None:
    assert record.end(TRIAL.id) is None
    record.finish(TRIAL.id, end)
    assert SweepRecord(record.folder).end(TRIAL.id) == end


def test_a_trial_that_ran_is_written_as_older_versions_did() -> None:
    # Its digest tells MLflow's mirror whether a run has changed.
    assert not {"proof", "of"} & make_end().to_json().keys()
    assert {"proof", "of"} <= implied_end().to_json().keys()


def test_a_trial_is_begun_with_its_first_step_or_checkpoint(record: SweepRecord) -> None:
    assert not record.begun(TRIAL.id)
    record.checkpoint(TRIAL.id).mkdir(parents=True)
    assert record.begun(TRIAL.id)
    record.checkpoint(TRIAL.id).rmdir()
    record.append_steps(TRIAL.id, [make_step(0)])
    assert record.begun(TRIAL.id)


def test_an_end_appears_in_one_piece_or_not_at_all(record: SweepRecord) -> None:
    # A crash between writing and renaming leaves only a partial file, which nobody reads.
    partial = record.folder / "trials" / f".{TRIAL.id}.json.1.partial"
    partial.write_text('{"status": "fin')
    assert record.end(TRIAL.id) is None
    record.finish(TRIAL.id, make_end())
    assert record.end(TRIAL.id) == make_end()


def test_an_end_is_never_half_there_for_a_reader(record: SweepRecord) -> None:
    problems: list[Exception] = []
    stop = threading.Event()

    def read() -> None:
        while not stop.is_set():
            try:
                record.end(TRIAL.id)
            except Exception as error:  # noqa: BLE001 - handed over to the test
                problems.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    for _ in range(200):
        record.finish(TRIAL.id, make_end())
    stop.set()
    reader.join()
    assert problems == []


def test_the_header_tells_what_was_asked(tmp_path: Path) -> None:
    record = begun(tmp_path, SPACE + "question: why?\nbudget: {trials: 3}\n")
    header = SweepRecord(record.folder).header()
    wanted = planned(SPACE + "budget: {trials: 3}\n")
    assert header.trials == wanted.trials
    assert header.not_run == (wanted.trials[3].id,)
    assert (header.name, header.question, header.content) == ("kl", "why?", wanted.content)
    assert header.version == package_version()


@pytest.mark.parametrize("text", ["", "{}", '{"trials": [], "name": "x"}', "[1]"])
def test_a_damaged_header_is_said_to_be_one(tmp_path: Path, text: str) -> None:
    (tmp_path / "sweep.json").write_text(text)
    with pytest.raises(GrpoError, match=r"sweep\.json is damaged, or another version"):
        SweepRecord(tmp_path).header()


def test_what_is_unfinished_leaves_out_ends_and_what_the_budget_leaves_out(tmp_path: Path) -> None:
    record = begun(tmp_path, SPACE + "budget: {trials: 3}\n")
    first, *rest = record.header().trials
    record.finish(first.id, make_end())
    assert record.unfinished() == rest[:2]


def test_an_equal_sweep_is_gone_on_with(tmp_path: Path) -> None:
    record = begun(tmp_path, SPACE)
    created = json.loads((record.folder / "sweep.json").read_text())["created"]
    again = open_sweep(planned(SPACE + "question: other\n"), tmp_path, None, resume=True)
    assert again.header().created == created


def test_a_name_that_is_taken_by_another_content_is_refused(tmp_path: Path) -> None:
    begun(tmp_path, SPACE)
    other = planned(SPACE + "budget: {steps: 3}\n")
    with pytest.raises(
        ConfigError, match=r"sweep 'kl' exists in .* with another content; give this"
    ):
        open_sweep(other, tmp_path, None, resume=False)
    assert open_sweep(other, tmp_path, "kl2", resume=False).header().name == "kl2"


def test_resuming_what_is_not_there_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--resume: there is no sweep 'kl' in"):
        open_sweep(planned(SPACE), tmp_path, None, resume=True)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("inside", ["", "deeper/still"])
def test_a_storage_that_cannot_be_written_is_refused(tmp_path: Path, inside: str) -> None:
    occupied = tmp_path / "file"
    occupied.write_text("not a folder")
    with pytest.raises(ConfigError, match=r"--storage: .*file.*: cannot be written: "):
        open_sweep(planned(SPACE), occupied / inside, None, resume=False)


def test_a_sweep_is_found_by_name_and_by_folder(tmp_path: Path) -> None:
    record = begun(tmp_path, SPACE)
    assert find_sweep("kl", tmp_path).folder == record.folder
    assert find_sweep(str(record.folder), tmp_path / "elsewhere").folder == record.folder


def test_a_sweep_that_is_not_there_brings_the_names_of_those_that_are(tmp_path: Path) -> None:
    begun(tmp_path, SPACE)
    with pytest.raises(ConfigError, match=r"sweep 'lk' is not in .*; there are kl"):
        find_sweep("lk", tmp_path)
    with pytest.raises(ConfigError, match=r"sweep 'kl' is not in .*nowhere$"):
        find_sweep("kl", tmp_path / "nowhere")
