import json

from sweeps.findings import Diagnosis


def test_a_diagnosis_survives_being_written_and_read() -> None:
    diagnosis = Diagnosis(
        outcome="unhealthy",
        message="why",
        confidence=0.9,
        symptom="zero_signal",
        stage="clipped",
        onset=3,
        evidence={"silent": 1.0},
        secondary=("reward_plateau",),
        missing=("entropy", "kl_share"),
    )
    assert Diagnosis.from_json(json.loads(json.dumps(diagnosis.to_json()))) == diagnosis


def test_a_diagnosis_without_findings_has_none_not_blanks() -> None:
    record = Diagnosis("inconclusive", "too short", 0.0).to_json()
    assert (record["symptom"], record["stage"], record["onset"], record["state"]) == (None,) * 4
