"""Rules that concern several settings at once, each with a name, a reason and a way out.

A rule refuses only what cannot be computed or what AReaL itself refuses: settings that train badly
are what people come to study, and are left to the linter. Under `areal_compat` the rules that AReaL
does not have are silent, and those that only AReaL has speak.
"""

import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ValidationError

from grpo_core.config import (
    LAMBDA_ARGUMENTS,
    ActorConfig,
    NormConfig,
    RejectionSamplingConfig,
    TaskConfig,
    TrialConfig,
)
from grpo_core.errors import ConfigError
from grpo_core.models import find_model
from grpo_core.names import EMBEDDED_TASKS, model_of

Check = Callable[[TrialConfig], str | None]
InAreal = Literal["refused", "fails later", "accepted"]
Target = Literal["norm", "rejection_sampling", "actor"]

TASKS_WITH_TURNS: frozenset[str] = frozenset()
"""Built-in tasks whose answers have several turns."""

UNCHECKED_BY_AREAL = frozenset(
    {
        "actor.eps_clip",
        "actor.eps_clip_higher",
        "actor.importance_sampling_level",
        "actor.kl_estimator",
    }
)
"""Fields whose values AReaL accepts without a look when it builds its configuration."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One named rule."""

    id: str
    """Name in messages and documentation."""
    check: Check
    """Gives what is wrong and what to set, starting with the dotted key, or None."""
    areal: InAreal
    """What AReaL does with the same settings."""


def check_rules(config: TrialConfig) -> list[str]:
    """Check every rule that applies.

    Args:
        config: The trial.

    Returns:
        One message per violation; each starts with the dotted key.
    """
    return [
        f"{message} [{rule.id}]"
        for rule in (*CONFIG_RULES, *MODEL_RULES)
        if not (config.areal_compat and rule.areal == "accepted")
        and (message := rule.check(config)) is not None
    ]


def areal_accepts(target: Target, settings: Mapping[str, object]) -> bool:
    """Say whether AReaL builds its configuration object from these settings.

    Args:
        target: Which object: a norm, a rejection filter, or the actor.
        settings: Its fields.

    Returns:
        Whether AReaL's own validation lets them pass.
    """
    model, path = _TARGETS[target]
    unchecked = UNCHECKED_BY_AREAL if target == "actor" else frozenset()
    try:
        section = model.model_validate(settings)
    except ValidationError as error:
        refused = {f"{target}.{'.'.join(map(str, item['loc']))}" for item in error.errors()}
        if refused - unchecked:
            return False
        checked = {key: value for key, value in settings.items() if f"actor.{key}" not in refused}
        return areal_accepts(target, checked)
    config = TrialConfig(areal_compat=True, actor=_actor_with(path, section))
    return not any(
        rule.check(config) is not None for rule in CONFIG_RULES if rule.areal == "refused"
    )


def _actor_with(path: str | None, section: BaseModel) -> ActorConfig:
    if path is None:
        return ActorConfig.model_validate(section.model_dump())
    return ActorConfig.model_validate({path: section.model_dump(), "use_decoupled_loss": True})


_TARGETS: dict[Target, tuple[type[BaseModel], str | None]] = {
    "norm": (NormConfig, "reward_norm"),
    "rejection_sampling": (RejectionSamplingConfig, "rejection_sampling"),
    "actor": (ActorConfig, None),
}


def _norms(config: TrialConfig) -> list[tuple[str, NormConfig]]:
    named = [
        ("actor.reward_norm", config.actor.reward_norm),
        ("actor.adv_norm", config.actor.adv_norm),
    ]
    return [(key, norm) for key, norm in named if norm is not None]


def _group_size(config: TrialConfig) -> str | None:
    for key, norm in _norms(config):
        if norm.group_size < 1 and "group" in {norm.mean_level, norm.std_level}:
            return (
                f"{key}.group_size={norm.group_size}: group-level normalization needs groups of at "
                f"least 1 row; set {key}.group_size to gconfig.n_samples"
            )
    return None


def _sapo_decoupled(config: TrialConfig) -> str | None:
    if not (config.actor.use_sapo_loss and config.actor.use_decoupled_loss):
        return None
    return (
        "actor.use_sapo_loss=true with actor.use_decoupled_loss=true: SAPO's gate is taken around "
        "the behaviour policy and has no proximal one; set actor.use_decoupled_loss to false"
    )


def _sapo_temperatures(config: TrialConfig) -> str | None:
    actor = config.actor
    if not actor.use_sapo_loss or min(actor.sapo_tau_pos, actor.sapo_tau_neg) > 0:
        return None
    name = "sapo_tau_pos" if actor.sapo_tau_pos <= 0 else "sapo_tau_neg"
    return (
        f"actor.{name}={getattr(actor, name)}: SAPO divides by it, so it has to be > 0; set it "
        "near 1 (paper: 1.0 and 1.05)"
    )


def _cispo_bound(config: TrialConfig) -> str | None:
    if not config.actor.use_cispo_loss or config.actor.eps_clip_higher is not None:
        return None
    return (
        "actor.eps_clip_higher=null with actor.use_cispo_loss=true: CISPO's upper bound on the "
        "importance weight, 1 + eps_clip_higher, has to be given; set it, e.g. to 4.0"
    )


def _cispo_level(config: TrialConfig) -> str | None:
    actor = config.actor
    if not actor.use_cispo_loss or actor.importance_sampling_level == "token":
        return None
    return (
        "actor.importance_sampling_level=sequence with actor.use_cispo_loss=true: CISPO weighs "
        "each token by its own ratio; set actor.importance_sampling_level to token"
    )


def _one_loss(config: TrialConfig) -> str | None:
    actor = config.actor
    asked = {
        "actor.use_sapo_loss=true": actor.use_sapo_loss,
        "actor.use_cispo_loss=true": actor.use_cispo_loss,
        "extensions.vespo": config.extensions.vespo is not None,
    }
    names = [name for name, on in asked.items() if on]
    if len(names) < 2:
        return None
    return f"{' with '.join(names)}: a trial has one policy loss; keep one of them"


def _filter_bounds(config: TrialConfig) -> str | None:
    settings = config.actor.rejection_sampling
    if settings is None or settings.lower is None or settings.lower <= settings.upper:
        return None
    return (
        f"actor.rejection_sampling.lower={settings.lower} is above "
        f"actor.rejection_sampling.upper={settings.upper}: nothing would pass; swap them"
    )


def _filter_ratio(config: TrialConfig) -> str | None:
    settings = config.actor.rejection_sampling
    if settings is None or settings.metric != "ratio":
        return None
    if settings.upper <= 1:
        return (
            f"actor.rejection_sampling.upper={settings.upper} with metric=ratio: the ratio of "
            "fresh data is 1 and would be refused; set it above 1, e.g. to 5.0"
        )
    if settings.lower is not None and settings.lower <= 0:
        return (
            f"actor.rejection_sampling.lower={settings.lower} with metric=ratio: ratios are always "
            "positive; set it between 0 and 1, or to null for no lower bound"
        )
    return None


def _filter_divergence(config: TrialConfig) -> str | None:
    settings = config.actor.rejection_sampling
    if settings is None or settings.metric not in {"kl_k2", "kl_k3", "binary_kl"}:
        return None
    if settings.upper > 0:
        return None
    return (
        f"actor.rejection_sampling.upper={settings.upper} with metric={settings.metric}: this "
        "divergence is never negative, so nothing would pass; set it above 0, e.g. to 0.5"
    )


def _filter_clamp(config: TrialConfig) -> str | None:
    settings = config.actor.rejection_sampling
    if settings is None or settings.action == "mask" or settings.metric == "ratio":
        return None
    return (
        f"actor.rejection_sampling.action=clamp with metric={settings.metric}: only an importance "
        "weight can be limited to the bounds; set metric to ratio or action to mask"
    )


def _filter_binary_kl(config: TrialConfig) -> str | None:
    settings = config.actor.rejection_sampling
    if settings is None or settings.metric != "binary_kl" or not config.areal_compat:
        return None
    return (
        "actor.rejection_sampling.metric=binary_kl with areal_compat=true: AReaL documents and "
        "computes it, but its validator refuses it; set areal_compat to false"
    )


def _overlong(config: TrialConfig) -> str | None:
    actor = config.actor
    if not actor.overlong_reward_penalty:
        return None
    for name in ("overlong_tokens", "overlong_penalty_factor"):
        if getattr(actor, name) is None:
            return (
                f"actor.{name}=null with actor.overlong_reward_penalty=true: the penalty is a line "
                "that needs its length and its height; set actor.overlong_tokens and "
                "actor.overlong_penalty_factor, or actor.overlong_reward_penalty to false"
            )
    if actor.overlong_tokens == 0:
        return (
            "actor.overlong_tokens=0 with actor.overlong_reward_penalty=true: the penalty divides "
            "by it; set it to the length of the penalized tail, e.g. a quarter of "
            "actor.max_new_tokens"
        )
    return None


def _dual_clip(config: TrialConfig) -> str | None:
    c_clip = config.actor.c_clip
    if c_clip is None or c_clip > 1:
        return None
    return (
        f"actor.c_clip={c_clip}: the dual clip has to lie above the ratio of fresh data, 1; set it "
        "above 1, e.g. to 3.0, or to null"
    )


def _m2_threshold(config: TrialConfig) -> str | None:
    threshold = config.actor.m2_threshold
    if threshold is None or threshold >= 0:
        return None
    return (
        f"actor.m2_threshold={threshold}: a mean of squares is never below 0, so one token would "
        "be left; set it above 0 (paper: 0.04), or to null"
    )


def _turns(config: TrialConfig) -> str | None:
    if config.actor.gae_timestep_unit == "token" or config.task.name in TASKS_WITH_TURNS:
        return None
    return (
        f"actor.gae_timestep_unit=turn with task.name={config.task.name}: the task's answers have "
        "no turns; set actor.gae_timestep_unit to token"
    )


def _lambda_argument(config: TrialConfig) -> str | None:
    rule = config.actor.gae_lambda
    if isinstance(rule, float):
        return None
    name = LAMBDA_ARGUMENTS[rule.rsplit(".", 1)[-1]]
    if getattr(config.actor.gae_lambda_kwargs, name) is not None:
        return None
    return (
        f"actor.gae_lambda_kwargs.{name}=null with actor.gae_lambda={rule}: the rule needs it; set "
        f"actor.gae_lambda_kwargs.{name}"
    )


def _reference(config: TrialConfig) -> str | None:
    if config.ref is not None or config.actor.kl_ctl == 0:
        return None
    return (
        f"actor.kl_ctl={config.actor.kl_ctl} with ref=null: there is no reference policy to stay "
        "near; add a `ref` section, set actor.kl_ctl to 0, or areal_compat to true for AReaL's "
        "reference of log-prob 0"
    )


def _reference_in_loss(config: TrialConfig) -> str | None:
    coefficient = config.extensions.kl_loss_coef
    if config.ref is not None or coefficient == 0:
        return None
    return (
        f"extensions.kl_loss_coef={coefficient} with ref=null: there is no reference policy to "
        "stay near; add a `ref` section or set extensions.kl_loss_coef to 0"
    )


def _greedy(config: TrialConfig) -> str | None:
    if not config.gconfig.greedy or config.gconfig.n_samples == 1:
        return None
    return (
        f"gconfig.greedy=true with gconfig.n_samples={config.gconfig.n_samples}: every answer of a "
        "group would be the same and no advantage could arise; set gconfig.greedy to false"
    )


def _token_limits(config: TrialConfig) -> str | None:
    shortest, longest = config.gconfig.min_new_tokens, config.gconfig.max_new_tokens
    if shortest <= longest:
        return None
    return (
        f"gconfig.min_new_tokens={shortest} is above gconfig.max_new_tokens={longest}: no answer "
        "can be long enough; lower gconfig.min_new_tokens"
    )


def _filter_without_decoupling(config: TrialConfig) -> str | None:
    if config.actor.rejection_sampling is None or config.actor.use_decoupled_loss:
        return None
    return (
        "actor.rejection_sampling is set with actor.use_decoupled_loss=false: proximal and "
        "behaviour policy are then the same, so the filter has nothing to judge; set "
        "actor.use_decoupled_loss to true, or actor.rejection_sampling to null"
    )


def _dynamic_bounds(config: TrialConfig) -> str | None:
    rule = config.extensions.dynamic_sampling
    if rule is None or rule.above is None:
        return None
    limits = [limit for limit in (rule.below, rule.at_most) if limit is not None]
    if not limits or min(limits) > rule.above:
        return None
    return (
        f"extensions.dynamic_sampling.above={rule.above} is not below the upper limit "
        f"{min(limits)}: no group could pass; lower extensions.dynamic_sampling.above"
    )


CONFIG_RULES: tuple[Rule, ...] = (
    Rule("group-size", _group_size, "refused"),
    Rule("sapo-decoupled", _sapo_decoupled, "refused"),
    Rule("sapo-temperatures", _sapo_temperatures, "refused"),
    Rule("cispo-bound", _cispo_bound, "refused"),
    Rule("cispo-level", _cispo_level, "refused"),
    Rule("one-loss", _one_loss, "refused"),
    Rule("filter-bounds", _filter_bounds, "refused"),
    Rule("filter-ratio", _filter_ratio, "refused"),
    Rule("filter-divergence", _filter_divergence, "refused"),
    Rule("filter-clamp", _filter_clamp, "refused"),
    Rule("filter-binary-kl", _filter_binary_kl, "refused"),
    Rule("filter-without-decoupling", _filter_without_decoupling, "accepted"),
    Rule("overlong-lengths", _overlong, "fails later"),
    Rule("dual-clip", _dual_clip, "fails later"),
    Rule("m2-threshold", _m2_threshold, "accepted"),
    Rule("turns", _turns, "fails later"),
    Rule("lambda-argument", _lambda_argument, "fails later"),
    Rule("reference", _reference, "accepted"),
    Rule("reference-in-loss", _reference_in_loss, "fails later"),
    Rule("greedy-group", _greedy, "accepted"),
    Rule("token-limits", _token_limits, "fails later"),
    Rule("dynamic-sampling-bounds", _dynamic_bounds, "fails later"),
)


def _embedded_only(config: TrialConfig) -> str | None:
    if model_of(config.policy, config.actor.path) is not None:
        return None
    for key, value, plain in _model_settings(config):
        if value != plain:
            return (
                f"{key}={_shown(value)} with policy={config.policy}: only real models have it; set "
                f"policy to hf:MODEL, or {key} to {_shown(plain)}"
            )
    return None


def _model_settings(config: TrialConfig) -> list[tuple[str, object, object]]:
    """Settings that the embedded policy ignores: key, value, and the value it computes with."""
    actor, plain = config.actor, ActorConfig()
    named = ["path", "dtype", "use_lora", "gradient_checkpointing"]
    settings = [(f"actor.{name}", getattr(actor, name), getattr(plain, name)) for name in named]
    gconfig = config.gconfig
    return [
        *settings,
        ("gconfig.stop", gconfig.stop or None, None),
        ("gconfig.stop_token_ids", gconfig.stop_token_ids or None, None),
    ]


def _shown(value: object) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return repr(value)


def _embedded_task(config: TrialConfig) -> str | None:
    real_model = model_of(config.policy, config.actor.path) is not None
    if real_model or ":" not in config.task.name:
        return None
    return (
        f"task.name={config.task.name} with policy={config.policy}: the embedded policy reads only "
        f"{' and '.join(EMBEDDED_TASKS)}; set policy to hf:MODEL, or task.name to one of them"
    )


def _question_settings(config: TrialConfig) -> str | None:
    task, plain = config.task, TaskConfig()
    if ":" in task.name:
        return None
    for name in ("options", "template", "examples", "example", "chat", "system", "extract"):
        if getattr(task, name) != getattr(plain, name):
            return (
                f"task.{name} is set with task.name={task.name}: an embedded task has its own "
                f"prompts; set task.name to reasoning_gym:DATASET or jsonl:FILE, or leave "
                f"task.{name} out"
            )
    return None


def _jsonl_settings(config: TrialConfig) -> str | None:
    task = config.task
    if not task.name.startswith("jsonl:"):
        return None
    if task.verifier == "graded":
        return (
            f"task.verifier=graded with task.name={task.name}: its answers are right or wrong; set "
            "task.verifier to strict"
        )
    if task.extract != "text":
        return (
            f"task.extract={task.extract} with task.name={task.name}: math-verify finds the answer "
            "in the whole text; set task.extract to text"
        )
    if task.options:
        return (
            f"task.options is set with task.name={task.name}: only reasoning_gym data sets have "
            "options; leave it out"
        )
    return None


def _chat_settings(config: TrialConfig) -> str | None:
    task = config.task
    if task.chat and task.example != TaskConfig().example:
        return (
            "task.example is set with task.chat=true: in a chat the examples are earlier turns; "
            "leave task.example out"
        )
    if task.system and not task.chat:
        return (
            "task.system is set with task.chat=false: only a chat has a system message; set "
            "task.chat to true"
        )
    return None


def _task_package(config: TrialConfig) -> str | None:
    family, colon, rest = config.task.name.partition(":")
    package = _TASK_PACKAGES.get(family) if colon else None
    if package is None:
        return None
    if importlib.util.find_spec(package) is None:
        return (
            f"task.name={config.task.name}: needs the package {package.replace('_', '-')}; "
            f"install it with `pip install grpo-sweeps[hf]`"
        )
    if family == "jsonl" and not Path(rest).expanduser().is_file():
        return f"task.name={config.task.name}: there is no file {rest}; give its path"
    return None


_TASK_PACKAGES = {"reasoning_gym": "reasoning_gym", "jsonl": "math_verify"}
"""What scoring a family of tasks needs."""


def _model_name(config: TrialConfig) -> str | None:
    model = model_of(config.policy, config.actor.path)
    if model == "":
        return "policy=hf: names no model; set actor.path, or policy to hf:MODEL"
    if model is None or config.actor.path in {"", model}:
        return None
    return (
        f"actor.path={config.actor.path} with policy={config.policy}: that names two models; "
        'set policy to hf, or actor.path to ""'
    )


def _model_package(config: TrialConfig) -> str | None:
    if model_of(config.policy, config.actor.path) is None:
        return None
    for package in ("transformers", "peft") if config.actor.use_lora else ("transformers",):
        if importlib.util.find_spec(package) is None:
            return (
                f"policy={config.policy}: needs the package {package}; install it with "
                "`pip install grpo-sweeps[hf]`"
            )
    return None


def _model_files(config: TrialConfig) -> str | None:
    model = model_of(config.policy, config.actor.path)
    if not model:
        return None
    try:
        find_model(model)
    except ConfigError as error:
        return "; ".join(error.problems)
    return None


MODEL_RULES: tuple[Rule, ...] = (
    Rule("embedded-policy", _embedded_only, "refused"),
    Rule("embedded-task", _embedded_task, "refused"),
    Rule("question-settings", _question_settings, "refused"),
    Rule("jsonl-settings", _jsonl_settings, "refused"),
    Rule("chat-settings", _chat_settings, "refused"),
    Rule("task-package", _task_package, "refused"),
    Rule("model-name", _model_name, "refused"),
    Rule("model-package", _model_package, "refused"),
    Rule("model-files", _model_files, "refused"),
)
"""Rules about our own policies and tasks, of which AReaL knows nothing."""
