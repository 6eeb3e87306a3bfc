"""Questions as tasks: templates, the split, judges, users' reward functions."""

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from grpo_core.config import TaskConfig
from grpo_core.errors import ConfigError, GrpoError
from grpo_core.rollout import checked_reward
from grpo_core.tasks import Answer, Task, load_task
from grpo_core.tasks.functions import load_function
from grpo_core.tasks.questions import Entry, QuestionTask, extract, is_held_out
from grpo_core.tasks.reasoning import read_options


@dataclass(frozen=True)
class Sums:
    """a + b for a below `most` and b below 10; entries come twice, as procedural sets repeat."""

    most: int = 10

    @property
    def size(self) -> int:
        return 20 * self.most

    def entry(self, index: int) -> Entry:
        a, b = divmod(index // 2, 10)
        raw: dict[str, Any] = {"question": f"{a} + {b}", "answer": str(a + b), "a": a}
        return Entry(raw["question"], raw["answer"], {k: str(v) for k, v in raw.items()}, raw)

    def score(self, text: str, entry: Mapping[str, Any]) -> float | None:
        if not text.isdigit():
            return None
        return 1.0 if text == entry["answer"] else 0.25


def sums(most: int = 10, reward: Any = None, **settings: Any) -> QuestionTask:  # noqa: ANN401
    return QuestionTask("sums", Sums(most), TaskConfig.model_validate(settings), reward)


def answer(text: str) -> Answer:
    return Answer(text, ended=True, ids=(4, 2), prompt_ids=(1,))


def test_it_is_a_task() -> None:
    assert isinstance(sums(), Task)


def test_the_judges_questions_are_never_trained_on_although_entries_repeat() -> None:
    task = sums(examples=3)
    judged = {prompt.entry["question"] for prompt in task.held_out_prompts(100)}
    trained = {
        prompt.entry["question"]
        for i in range(60)
        for prompt in task.training_prompts(np.random.default_rng(i), 8)
    }
    shown = set(task.training_prompts(np.random.default_rng(0), 1)[0].text.splitlines()[:-1])
    assert judged
    assert all(is_held_out(question) for question in judged)
    assert not judged & trained
    assert len(shown) == 3
    assert not {line.rsplit(" ", 1)[0] for line in shown} & (judged | trained)
    assert len(judged | trained) == 97  # of 100 different questions, three are shown


def test_held_out_prompts_are_the_same_at_every_call_and_a_longer_list_begins_alike() -> None:
    one, other = sums(), sums()
    assert one.held_out_prompts(12) == other.held_out_prompts(12)
    assert one.held_out_prompts(12)[:5] == sums().held_out_prompts(5)


def test_a_batch_has_different_questions_until_there_are_no_more() -> None:
    batch = sums().training_prompts(np.random.default_rng(0), 40)
    assert len({prompt.text for prompt in batch}) == 40
    crowd = sums(most=1).training_prompts(np.random.default_rng(0), 40)
    assert len(crowd) == 40
    assert len({prompt.text for prompt in crowd}) < 10


def test_plain_prompts_show_solved_examples_and_the_question_through_the_template() -> None:
    task = sums(template="{a}: {question} =", examples=2, example="{prompt} {answer};\n")
    prompt = task.training_prompts(np.random.default_rng(0), 1)[0]
    *shown, question = prompt.text.split("\n")
    assert len(shown) == 2
    for line in shown:
        a, _, rest = line.partition(": ")
        left, _, result = rest.partition(" = ")
        assert result == f"{sum(int(term) for term in left.split(' + '))};"
        assert left.startswith(a)
    assert question == f"{prompt.entry['a']}: {prompt.entry['question']} ="
    assert prompt.messages == ()


def test_in_a_chat_examples_are_earlier_turns() -> None:
    task = sums(chat=True, examples=2, system="Be brief.")
    prompt = task.training_prompts(np.random.default_rng(0), 1)[0]
    roles = [message.role for message in prompt.messages]
    assert roles == ["system", "user", "assistant", "user", "assistant", "user"]
    assert prompt.messages[0].content == "Be brief."
    assert prompt.messages[-1].content == prompt.text == prompt.entry["question"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        pytest.param({"template": "{quest}"}, r"got \{quest\}, wanted one of \{a\}", id="unknown"),
        pytest.param({"template": "{question"}, "cannot be read", id="open-brace"),
        pytest.param({"template": "{a.real}"}, r"got \{a.real\}", id="attribute"),
        pytest.param({"template": "{a!r}"}, r"got \{a\}", id="conversion"),
        pytest.param({"example": "{question}"}, "task.example", id="example"),
        pytest.param({"examples": 64}, "has only", id="too-many-examples"),
    ],
)
def test_a_bad_template_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        sums(most=3, **settings)


@pytest.mark.parametrize(
    ("verifier", "text", "passes", "reward"),
    [
        pytest.param("strict", "7", True, 2.0, id="right"),
        pytest.param("strict", "8", False, -1.0, id="wrong"),
        pytest.param("graded", "8", False, -0.25, id="a-quarter-of-the-way-from-minus-1-to-2"),
        pytest.param("graded", "x", False, -1.0, id="unreadable-is-worth-nothing"),
        pytest.param("weak", "1 2 7 9", False, 2.0, id="somewhere-in-the-text"),
    ],
)
def test_rewards_follow_the_verifier_and_the_judge_does_not(
    *, verifier: str, text: str, passes: bool, reward: float
) -> None:
    task = sums()
    config = TaskConfig.model_validate(
        {"verifier": verifier, "reward_right": 2.0, "reward_wrong": -1.0}
    )
    prompt = task.prompt(Sums().entry(2 * 34))  # 3 + 4
    assert task.passes(prompt, answer(text)) is passes
    assert task.reward(prompt, answer(text), config) == pytest.approx(reward)


def test_unreadable_answers_are_counted_and_the_first_is_shown() -> None:
    task = sums()
    prompt = task.prompt(Sums().entry(0))
    assert task.notes() == ()
    for text in ("0", "none of it", "1", "?"):
        task.passes(prompt, answer(text))
    (note,) = task.notes()
    assert note.startswith("2 of 4 answers could not be read")
    assert note.endswith("the first: 'none of it'")


@pytest.mark.parametrize(
    ("how", "text", "found"),
    [
        ("text", " 7 \n", "7"),
        ("last-number", "3 and -1,204.50 it is.", "-1204.50"),
        ("last-number", "none", None),
        ("tag", "<answer>1</answer> no, <answer> 2 </answer>", "2"),
        ("tag", "2", None),
    ],
)
def test_the_answer_is_found_in_the_text(how: str, text: str, found: str | None) -> None:
    assert extract(text, how) == found


# jsonl


GSM8K = [
    {"question": "2 apples and 3?", "answer": "2 + 3 = 5\n#### 5"},
    {"question": "half a cake", "answer": "#### \\frac{1}{2}"},
    *({"question": f"{i} and {i}?", "answer": f"#### {2 * i:,}"} for i in range(600, 630)),
]


def write(path: Path, lines: list[str]) -> str:
    path.write_text("\n".join(lines))
    return f"jsonl:{path}"


@pytest.fixture
def gsm8k(tmp_path: Path) -> str:
    return write(tmp_path / "data.jsonl", [json.dumps(row) for row in GSM8K])


@pytest.mark.parametrize(
    ("question", "text", "passes"),
    [
        ("2 apples and 3?", "2 + 3 is 5", True),
        ("2 apples and 3?", "It is \\boxed{5}.", True),
        ("2 apples and 3?", "It is 6.", False),
        ("half a cake", "0.5", True),
        ("half a cake", "$\\frac{2}{4}$", True),
        ("620 and 620?", "1240", True),
    ],
)
def test_math_verify_judges_the_last_answer(
    gsm8k: str, *, question: str, text: str, passes: bool
) -> None:
    task = load_task(gsm8k)
    prompts = [
        *task.held_out_prompts(40),
        *task.training_prompts(np.random.default_rng(0), 40),
    ]
    prompt = next(p for p in prompts if p.text == question)
    assert task.passes(prompt, answer(text)) is passes


def test_an_answer_that_math_verify_cannot_read_is_counted(gsm8k: str) -> None:
    task = load_task(gsm8k)
    prompt = task.held_out_prompts(1)[0]
    assert task.passes(prompt, answer("no idea, sorry")) is False
    assert task.notes()[0].startswith("1 of 1 answers could not be read")


def test_lines_that_do_not_parse_are_named_and_counted(tmp_path: Path) -> None:
    good = json.dumps(GSM8K[0])
    lines = [
        good,
        '{"question": "x"}',
        "{",
        '["question"]',
        '{"question": "x", "answer": "#### "}',
        '{"question": "x", "answer": 3}',
        '{"question": "y", "answer": "#### what?!"}',
        "",
        '{"question": "", "answer": "#### 1"}',
    ]
    name = write(tmp_path / "bad.jsonl", lines)
    with pytest.raises(ConfigError) as caught:
        load_task(name)
    *shown, count = [problem.rpartition("bad.jsonl")[2] for problem in caught.value.problems]
    assert [line.partition(": ")[0] for line in shown] == [":2", ":3", ":4", ":5", ":6"]
    assert "'answer' has to be text, got nothing" in shown[0]
    assert "no JSON" in shown[1]
    assert "wanted a mapping, got list" in shown[2]
    assert "no answer behind ####" in shown[3]
    assert "got 3" in shown[4]
    assert count == ": 7 of 9 lines have a problem"


def test_a_right_answer_that_math_verify_cannot_read_is_refused(tmp_path: Path) -> None:
    name = write(tmp_path / "x.jsonl", ['{"question": "y", "answer": "#### what?!"}'])
    with pytest.raises(ConfigError, match=r":1: math-verify cannot read the answer 'what\?!'"):
        load_task(name)


def test_a_file_without_questions_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="has no question"):
        load_task(write(tmp_path / "empty.jsonl", ["", ""]))
    with pytest.raises(ConfigError, match="No such file"):
        load_task(f"jsonl:{tmp_path}/nowhere.jsonl")


# reasoning_gym


CHAIN_SUM = ("min_terms=2", "max_terms=2", "min_digits=1", "max_digits=1")


def gym(name: str, **settings: Any) -> Task:  # noqa: ANN401
    pytest.importorskip("reasoning_gym", reason="the [hf] extra is not installed")
    config = TaskConfig.model_validate({"name": f"reasoning_gym:{name}", **settings})
    return load_task(config.name, config)


def test_a_reasoning_gym_data_set_is_a_task_with_its_own_judge() -> None:
    task = gym("chain_sum", options=CHAIN_SUM, template="{expression} =")
    prompt = task.training_prompts(np.random.default_rng(0), 1)[0]
    left, sign, right = prompt.text.removesuffix(" =").split(" ")
    total = int(left) + (int(right) if sign == "+" else -int(right))
    assert prompt.target == str(total)
    assert task.passes(prompt, answer(f" {total}"))
    assert not task.passes(prompt, answer(f"the answer is {total}"))  # partial credit is no pass
    assert task.reward(prompt, answer(str(total)), TaskConfig()) == 1.0


def test_partial_credit_is_a_reward_only_when_graded() -> None:
    task = gym("chain_sum", options=CHAIN_SUM)
    prompt = task.training_prompts(np.random.default_rng(0), 1)[0]
    close = answer(f"the answer is {prompt.target}")
    assert task.reward(prompt, close, TaskConfig()) == 0.0
    assert 0 < task.reward(prompt, close, TaskConfig(verifier="graded")) < 1
    assert task.reward(prompt, close, TaskConfig(verifier="weak")) == 1.0


def test_a_judge_that_raises_is_an_unreadable_answer() -> None:
    task = gym("prime_factorization")
    prompt = task.training_prompts(np.random.default_rng(0), 1)[0]
    assert not task.passes(prompt, answer("abc"))
    assert task.notes()[0].startswith("1 of 1 answers could not be read")


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        pytest.param("chain_sums", (), "did you mean chain_sum", id="nearest-name"),
        pytest.param("chain_sum", ("min_term=2",), "refuses .*min_term", id="unknown-option"),
        pytest.param("chain_sum", ("min_terms=0",), "refuses", id="bad-value"),
        pytest.param("chain_sum", ("min_terms",), "wanted name=value", id="no-value"),
    ],
)
def test_a_wrong_data_set_or_option_is_refused(
    name: str, options: tuple[str, ...], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        gym(name, options=options)


def test_options_are_json_or_else_text() -> None:
    read = read_options(("a=2", "b=[1, 2]", "c=true", "d=plain words"))
    assert read == {"a": 2, "b": [1, 2], "c": True, "d": "plain words"}


# users' functions


def test_a_users_reward_gets_areals_arguments() -> None:
    seen: dict[str, Any] = {}

    def reward(
        prompt: str,
        completions: str,
        prompt_ids: list[int],
        completion_ids: list[int],
        **data: object,
    ) -> float:
        seen.update(data, prompt=prompt, text=completions, ids=(prompt_ids, completion_ids))
        return 0.5

    task = sums(reward=reward)
    prompt = task.prompt(Sums().entry(2 * 34))
    assert checked_reward(task, prompt, answer("seven"), TaskConfig()) == 0.5
    assert seen == {
        "question": "3 + 4",
        "answer": "7",
        "a": 3,
        "prompt": "3 + 4",
        "text": "seven",
        "ids": ([1], [4, 2]),
    }
    assert not task.passes(prompt, answer("seven"))  # the judge is another


@pytest.mark.parametrize(
    ("returned", "read"),
    [(1, 1.0), (np.float32(0.5), 0.5), (torch.tensor([0.25]), 0.25), (torch.tensor(2), 2.0)],
    ids=["int", "numpy", "one-element", "scalar-tensor"],
)
def test_one_number_is_a_reward_whatever_holds_it(returned: object, read: float) -> None:
    task = sums(reward=lambda *_args, **_data: returned)
    prompt = task.prompt(Sums().entry(0))
    assert checked_reward(task, prompt, answer("0"), TaskConfig()) == read


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (None, "must be a number, got None"),
        (torch.zeros(2), r"must be a number, got shape \(2,\)"),
        (np.zeros((1, 3)), r"must be a number, got shape \(1, 3\)"),
        (True, "must be a number, got True"),
        ({"score": 1.0}, "must be a number, got {'score': 1.0}"),
    ],
    ids=["none", "tensor", "array", "bool", "mapping"],
)
def test_anything_else_is_refused_with_the_sample(returned: object, message: str) -> None:
    task = sums(reward=lambda *_args, **_data: returned)
    prompt = task.prompt(Sums().entry(0))
    with pytest.raises(GrpoError, match=message + r" on '0 \+ 0' -> '5'"):
        checked_reward(task, prompt, answer("5"), TaskConfig())


def test_nan_is_kept_as_evidence() -> None:
    task = sums(reward=lambda *_args, **_data: float("nan"))
    value = checked_reward(task, task.prompt(Sums().entry(0)), answer("5"), TaskConfig())
    assert value != value  # noqa: PLR0124 - only NaN differs from itself


@pytest.fixture
def user_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "my_rewards_for_tests.py").write_text(
        "LIMIT = 3\ndef good(*args, **data):\n    return 1.0\n"
    )
    (tmp_path / "my_broken_rewards.py").write_text("raise RuntimeError('no licence')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    return "my_rewards_for_tests"


def test_a_function_is_imported_by_its_name(user_module: str) -> None:
    assert load_function(f"{user_module}:good")() == 1.0


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("my_rewards_for_tests", "wanted module:function"),
        (":good", "wanted module:function"),
        ("my_rewards_for_tests:bad", "nothing of that name"),
        ("my_rewards_for_tests:LIMIT", "wanted a function, my_rewards_for_tests has 3"),
        ("no_such_module_here:good", "cannot be imported: ModuleNotFoundError"),
        ("my_broken_rewards:good", "cannot be imported: RuntimeError: no licence"),
    ],
)
@pytest.mark.usefixtures("user_module")
def test_what_is_no_function_is_refused(path: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_function(path)


def test_code_can_be_turned_off_and_is_then_not_even_imported(user_module: str) -> None:
    sys.modules.pop(user_module, None)
    settings = TaskConfig(name="think", reward_fn=f"{user_module}:good")
    with pytest.raises(ConfigError, match="is turned off"):
        load_task("think", settings, allow_code=False)
    assert user_module not in sys.modules


def test_an_embedded_task_takes_no_reward_function(user_module: str) -> None:
    with pytest.raises(ConfigError, match="an embedded task has its own rewards"):
        load_task("think", TaskConfig(reward_fn=f"{user_module}:good"))
