import numpy as np
import pytest

from grpo_core.config import TaskConfig
from grpo_core.errors import ConfigError
from grpo_core.names import EMBEDDED_TASKS, POLICY_NAMES, TASK_NAMES
from grpo_core.policy import POLICIES
from grpo_core.tasks import TASK_FAMILIES, TASKS, Answer, load_task
from grpo_core.tasks.letters import LONGEST_ANSWER, Habits, LetterTask

THINK = TASKS["think"]
FLAWLESS = Habits(
    careful=1.0,
    careful_slip=0.0,
    sloppy_slip=0.0,
    filler=0.0,
    second_answer=0.0,
    goes_on=0.0,
    never_ends=0.0,
)


def test_prompts_name_the_operation_and_carry_its_result() -> None:
    assert LetterTask("think", "R", lambda text: text[::-1]).prompt("bdac").target == "cadb"
    prompt = LetterTask("sort", "S", lambda text: "".join(sorted(text))).prompt("dab")
    assert (prompt.text, prompt.target) == ("^Sdab=", "abd")


@pytest.mark.parametrize(
    ("text", "ended", "passes"),
    [
        pytest.param("#cba", True, True, id="plain"),
        pytest.param("abc;#cba", True, True, id="careful"),
        pytest.param("#aaa#cba", True, True, id="last-answer-right"),
        pytest.param("#cba#aaa", True, False, id="last-answer-wrong"),
        pytest.param("#cba;dd", True, True, id="goes-on-behind"),
        pytest.param("#cba", False, True, id="cut-behind-the-answer"),
        pytest.param("#cbad", True, False, id="too-long"),
        pytest.param("#cb", True, False, id="too-short"),
        pytest.param("cba", True, False, id="no-mark"),
        pytest.param("", True, False, id="empty"),
        pytest.param("#", True, False, id="mark-only"),
    ],
)
def test_the_last_answer_decides(text: str, *, ended: bool, passes: bool) -> None:
    prompt = LetterTask("think", "R", lambda letters: letters[::-1]).prompt("abc")
    assert THINK.passes(prompt, Answer(text, ended)) is passes


@pytest.mark.parametrize(
    ("verifier", "text", "expected"),
    [
        pytest.param("strict", "#cba#aaa", 5.0, id="strict-takes-the-last"),
        pytest.param("weak", "#cba#aaa", 10.0, id="weak-takes-any"),
        pytest.param("graded", "#cda", 5.0 + 5.0 * 2 / 3, id="graded-counts-letters"),
        pytest.param("graded", "~~", 5.0, id="graded-without-answer"),
    ],
)
def test_rewards_lie_between_wrong_and_right_by_the_verifier(
    verifier: str, text: str, expected: float
) -> None:
    config = TaskConfig.model_validate(
        {"verifier": verifier, "reward_wrong": 5.0, "reward_right": 10.0}
    )
    prompt = LetterTask("think", "R", lambda letters: letters[::-1]).prompt("abc")
    assert THINK.reward(prompt, Answer(text, ended=True), config) == pytest.approx(expected)


def test_no_held_out_prompt_is_ever_trained_on() -> None:
    held_out = {prompt.text for prompt in THINK.held_out_prompts(256)}
    trained = {p.text for p in THINK.training_prompts(np.random.default_rng(3), 3000)}
    assert not held_out & trained
    assert THINK.held_out_prompts(64) == THINK.held_out_prompts(256)[:64]


def test_a_flawless_careful_demonstration_copies_then_answers() -> None:
    task = LetterTask("think", "R", lambda letters: letters[::-1], FLAWLESS)
    answer = task.demonstration(np.random.default_rng(0), task.prompt("bdac"))
    assert answer == Answer("bdac;#cadb", ended=True)


def test_demonstrations_are_cut_at_the_limit_and_only_then_unended() -> None:
    rng = np.random.default_rng(1)
    prompts = THINK.training_prompts(rng, 400)
    answers = [THINK.demonstration(rng, prompt) for prompt in prompts]
    assert all(len(answer.text) <= LONGEST_ANSWER for answer in answers)
    assert all(answer.ended == (len(answer.text) < LONGEST_ANSWER) for answer in answers)
    assert {answer.ended for answer in answers} == {True, False}


def test_sloppy_answers_are_wrong_more_often_than_careful_ones() -> None:
    rng = np.random.default_rng(2)
    prompts = THINK.training_prompts(rng, 1500)
    passed: dict[bool, list[bool]] = {True: [], False: []}
    for prompt in prompts:
        answer = THINK.demonstration(rng, prompt)
        passed[";" in answer.text.split("#")[0]].append(THINK.passes(prompt, answer))
    assert np.mean(passed[True]) > np.mean(passed[False]) + 0.3


def test_names_that_need_no_torch_agree_with_the_registries() -> None:
    families = [f"{family}:" for family in TASK_FAMILIES]
    assert tuple(TASKS) == EMBEDDED_TASKS == TASK_NAMES[:2]
    assert [name.partition(":")[0] + ":" for name in TASK_NAMES[2:]] == families
    assert (*POLICIES, "hf:MODEL") == POLICY_NAMES
    assert all(task.name == name for name, task in TASKS.items())


def test_an_unknown_task_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"task.name: 'thnk' is not a task; wanted one of think"):
        load_task("thnk")
