"""TrialConfig: everything that decides a trial's outcome, under AReaL's names.

Field names, nesting and defaults follow AReaL's `areal/api/cli_args.py` (PPOActorConfig,
NormConfig, RejectionSamplingConfig, GenerationHyperparameters, OptimizerConfig). Settings that
AReaL does not have live under `task`, `evaluation` and `extensions`. The text beneath a field is
what `sweeps explain` prints. Rules that concern several fields are in `grpo_core.rules`.
"""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

Level = Literal["batch", "group"]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=1)]
LambdaRule = Literal[
    "areal.trainer.ppo.lambda_fn.constant_gae_lambda",
    "areal.trainer.ppo.lambda_fn.vapo_length_adaptive_gae",
    "areal.trainer.ppo.lambda_fn.relative_position_gae_lambda",
]
LAMBDA_ARGUMENTS = {
    "constant_gae_lambda": "value",
    "vapo_length_adaptive_gae": "alpha",
    "relative_position_gae_lambda": "q",
}
"""The argument that each rule for GAE's lambda needs."""


class Section(BaseModel):
    """A frozen group of settings that refuses names it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class NormConfig(Section):
    """How a mean and a spread are taken out of rewards or advantages."""

    mean_level: Level | None = "batch"
    """Whose mean is subtracted: the whole batch's, the own group's, or none (null)."""
    mean_leave1out: bool = False
    """Each element's mean leaves that element out (RLOO when it acts on rewards)."""
    std_level: Level | None = "batch"
    """Whose spread divides: the whole batch's, the own group's, or none (null, Dr.GRPO)."""
    std_unbiased: bool = True
    """Divide squared deviations by n - 1 (true) or n (false)."""
    eps: NonNegative = 1e-5
    """Added to the spread before dividing; in reward units."""
    group_size: Annotated[int, Field(ge=0)] = 1
    """Rows per group when a batch comes without group boundaries; ours always brings them."""


class RejectionSamplingConfig(Section):
    """Which tokens or answers are too stale to learn from, and what happens to them."""

    level: Literal["token", "sequence"] = "token"
    """Judge every token by itself, or an answer as a whole."""
    action: Literal["mask", "clamp"] = "mask"
    """Drop what is out of bounds, or limit its importance weight."""
    metric: Literal["ratio", "kl_k1", "kl_k2", "kl_k3", "binary_kl"] = "ratio"
    """What is compared with the bounds: proximal / behaviour ratio, or a divergence in nats."""
    agg: Literal["sum", "mean", "max"] = "mean"
    """How an answer's token values become one number (level: sequence)."""
    upper: float = 5.0
    """Largest accepted value of the metric."""
    lower: float | None = None
    """Smallest accepted value of the metric; null means no lower bound (0 for `action: clamp`)."""


class LambdaArguments(Section):
    """Arguments of a per-answer rule for GAE's lambda (AReaL's `gae_lambda_kwargs`)."""

    value: Share | None = None
    """constant_gae_lambda: the lambda of every answer."""
    alpha: Positive | None = None
    """vapo_length_adaptive_gae: lambda = max(0, 1 - 1 / (alpha * length))."""
    q: Share | None = None
    """relative_position_gae_lambda: lambda ** (length - 1), the weight of the last step."""


class OptimizerConfig(Section):
    """The optimizer of the policy."""

    type: Literal["adam", "sgd"] = "adam"
    """Adam is nearly blind to the scale of the advantages; SGD is not."""
    lr: Positive = 1e-3
    """Peak learning rate."""
    weight_decay: NonNegative = 0.01
    """Decoupled weight decay (AdamW); plain L2 for SGD."""
    beta1: Annotated[float, Field(ge=0, lt=1)] = 0.9
    """Decay of Adam's first moment."""
    beta2: Annotated[float, Field(ge=0, lt=1)] = 0.999
    """Decay of Adam's second moment."""
    eps: Positive = 1e-8
    """Added to the root of Adam's second moment."""
    min_lr_ratio: Share = 0.0
    """Learning rate at the end of a decaying schedule, as a share of `lr`."""
    lr_scheduler_type: Literal["constant", "linear", "cosine"] = "constant"
    """Shape of the learning rate after warm-up."""
    warmup_steps_proportion: Share = 0.001
    """Share of `total_train_steps` over which the learning rate rises linearly from 0."""
    gradient_clipping: NonNegative = 1.0
    """Largest global gradient norm; 0 turns clipping off."""


class ActorConfig(Section):
    """The policy and how rewards become its update (AReaL's PPOActorConfig)."""

    optimizer: OptimizerConfig = OptimizerConfig()
    """The optimizer of the policy."""
    temperature: Positive = 1.0
    """Temperature at which the trainer computes log-probs; has to equal `gconfig.temperature`."""
    ppo_n_minibatches: Count = 4
    """Optimizer updates per batch; with 1 and no staleness every importance ratio is exactly 1."""
    eps_clip: NonNegative = 0.2
    """PPO clip range: ratios are clipped to [1 - eps_clip, 1 + eps_clip_higher]."""
    eps_clip_higher: Annotated[float, Field(ge=-1, allow_inf_nan=False)] | None = None
    """Upper clip range when it differs (DAPO); null means symmetric. TRL's CISPO bounds the weight
    by `epsilon_high` itself, which is 1 + eps_clip_higher here and may lie below 1."""
    c_clip: Finite | None = None
    """Dual clip: the loss of a token with negative advantage is at most c_clip * |advantage|."""
    m2_threshold: Finite | None = None
    """M2PO: drop the tokens with the largest squared log-ratio until the mean is below this."""
    reward_norm: NormConfig | None = None
    """Normalization of the rewards, one value per answer; null turns it off."""
    reward_scaling: Finite = 1.0
    """Factor on (reward + reward_bias)."""
    reward_bias: Finite = 0.0
    """Added to the reward before scaling."""
    reward_clip: NonNegative = 20.0
    """Scaled rewards are clipped to [-reward_clip, reward_clip]."""
    overlong_reward_penalty: bool = False
    """Penalize answers that come close to `actor.max_new_tokens` (DAPO)."""
    overlong_tokens: Annotated[int, Field(ge=0)] | None = None
    """Length of the penalized tail, in tokens."""
    overlong_penalty_factor: Finite | None = None
    """Penalty at the full length, in reward units; grows linearly over the tail."""
    mask_no_eos_with_zero: bool = False
    """Set the outcome reward of truncated answers to 0, after reward normalization."""
    discount: Share = 1.0
    """Discount of generalized advantage estimation (GAE)."""
    gae_lambda: Share | LambdaRule = 1.0
    """Lambda of GAE; 1 gives the sum of all later rewards. Or a rule that sets it per answer."""
    gae_lambda_kwargs: LambdaArguments = LambdaArguments()
    """Arguments of that rule."""
    gae_timestep_unit: Literal["token", "turn"] = "token"
    """What counts as one time step of GAE."""
    adv_norm: NormConfig | None = None
    """Normalization of the advantages over trained tokens; null turns it off."""
    kl_ctl: NonNegative = 0.1
    """Weight of the per-token KL penalty to the reference policy, in reward units per nat."""
    kl_estimator: Literal["k1", "k2", "k3"] = "k1"
    """Estimator of that KL: log-ratio, its square / 2, or exp(-d) - 1 + d."""
    importance_sampling_level: Literal["token", "sequence"] = "token"
    """One importance ratio per token (PPO), or the geometric mean per answer (GSPO)."""
    use_sapo_loss: bool = False
    """SAPO: soft gates instead of hard clipping."""
    sapo_tau_pos: Finite = 1.0
    """SAPO's gate temperature for positive advantages."""
    sapo_tau_neg: Finite = 1.05
    """SAPO's gate temperature for other advantages."""
    use_cispo_loss: bool = False
    """CISPO: clip the importance weight, keep every token's gradient."""
    recompute_logprob: bool = False
    """Recompute behaviour log-probs with the trainer instead of taking the sampler's."""
    use_decoupled_loss: bool = False
    """Clip around a recomputed proximal policy instead of the behaviour policy."""
    prox_logp_method: Literal["recompute", "loglinear", "metrics", "reuse_train_logp"] = "recompute"
    """Where the proximal policy's log-probs come from."""
    rejection_sampling: RejectionSamplingConfig | None = None
    """Filter on proximal against behaviour policy; null turns it off."""
    max_new_tokens: Count = 1024
    """Response limit that the overlong penalty counts from."""
    path: str = ""
    """Model of `policy: hf`: a directory, a GGUF file or a name (or `policy: hf:MODEL`)."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Precision of a real model's arithmetic (AReaL's default: bfloat16). Trained weights and the
    optimizer stay in float32 beside it, frozen matrices are stored in it."""
    use_lora: bool = False
    """Train low-rank adapters of a real model; its own weights, frozen, are the reference."""
    lora_rank: Count = 32
    """Rank of the adapters."""
    lora_alpha: Count = 16
    """The adapters' output is scaled by lora_alpha / lora_rank."""
    target_modules: tuple[str, ...] = ()
    """Names of the linear layers with adapters; empty means all but the output layer."""
    gradient_checkpointing: bool = False
    """Recompute a real model's layers in the backward pass: less memory, a third more time."""


class CriticConfig(Section):
    """The value function of PPO; null (GRPO) means none (AReaL's PPOCriticConfig)."""

    optimizer: OptimizerConfig = OptimizerConfig()
    """The optimizer of the value function."""
    ppo_n_minibatches: Count = 4
    """Optimizer updates of the value function per batch."""
    eps_clip: NonNegative = 0.5
    """Clip range of the value loss."""
    mask_no_eos_with_zero: bool = False
    """Accepted because AReaL has it; nothing in the value update uses it."""


class RefConfig(Section):
    """The reference policy: the initial policy, frozen. Null means there is none."""


class GenerationConfig(Section):
    """How answers are sampled (AReaL's GenerationHyperparameters)."""

    n_samples: Count = 1
    """Answers per prompt: the group size."""
    max_new_tokens: Count = 16384
    """Longest answer, in tokens; a longer one is cut (truncated)."""
    min_new_tokens: Annotated[int, Field(ge=0)] = 0
    """Shortest answer: the end-of-sequence token is forbidden before it."""
    greedy: bool = False
    """Take the most likely token instead of sampling."""
    temperature: Positive = 1.0
    """Sampling temperature."""
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Sample from the smallest set of tokens with this much probability."""
    top_k: Count = int(1e8)
    """Sample from this many most likely tokens."""
    stop: tuple[str, ...] | None = None
    """Texts that end a real model's answer as its end-of-sequence token does."""
    stop_token_ids: tuple[Annotated[int, Field(ge=0)], ...] | None = None
    """Token ids that end a real model's answer, besides its end-of-sequence tokens."""


class RolloutConfig(Section):
    """How far the sampler may lag behind the trainer (AReaL's InferenceEngineConfig)."""

    max_head_offpolicyness: Annotated[int, Field(ge=0, le=8)] = 0
    """Policy versions between the sampler and the trainer: every batch is this stale."""


class DatasetConfig(Section):
    """The prompts of a step."""

    batch_size: Count = 1
    """Prompts per training batch; answers are batch_size * gconfig.n_samples."""


class TaskConfig(Section):
    """What the policy is trained on; not an AReaL section."""

    name: str = "think"
    """An embedded task (think, sort), `reasoning_gym:DATASET`, or `jsonl:FILE` with lines
    {"question": ..., "answer": "... #### 42"}."""
    reward_right: Finite = 1.0
    """Reward of an answer that passes the verifier."""
    reward_wrong: Finite = 0.0
    """Reward of an answer that does not."""
    verifier: Literal["strict", "weak", "graded"] = "strict"
    """strict: the last answer decides; weak: any answer counts (can be gamed); graded: partial
    credit between reward_wrong and reward_right."""
    options: tuple[str, ...] = ()
    """Settings of a reasoning-gym dataset, each as `name=value`."""
    template: str = "{question}"
    """What the policy reads; in braces: the question, or another field of the data set's entry."""
    examples: Annotated[int, Field(ge=0, le=64)] = 0
    """Solved examples before each question; they are neither trained nor judged on."""
    example: str = "{prompt} {answer}\n"
    """How one solved example looks; in a chat they are earlier turns instead."""
    chat: bool = False
    """Ask through the tokenizer's chat template."""
    system: str = ""
    """System message of the chat; empty means the template's own."""
    extract: Literal["text", "last-number", "tag"] = "text"
    """What counts as the answer: the whole text, its last number, or what stands in the last
    <answer>...</answer>. `jsonl:` tasks leave the finding to math-verify."""
    reward_fn: str | None = None
    """A reward function of your own, `module:function`, called as AReaL calls it: (prompt,
    completions, prompt_ids, completion_ids, **entry). The judge stays the task's strict check."""


class EvaluationConfig(Section):
    """The judge: the strict check on held-out prompts, outside the reward pipeline."""

    prompts: Annotated[int, Field(ge=8, le=4096)] = 256
    """Fixed held-out prompts before and after training."""
    every: Annotated[int, Field(ge=0)] = 10
    """Steps between the smaller evaluations on the way; 0 turns them off."""
    interim_prompts: Annotated[int, Field(ge=8, le=4096)] = 64
    """Prompts of an evaluation on the way."""


class SamplerCorrectionConfig(Section):
    """TRL's weight for the gap between trainer and sampler (`vllm_importance_sampling_*`).

    The weight is trainer / sampler probability, of a token or the product over an answer.
    """

    level: Literal["token", "sequence"] = "sequence"
    """One weight per token, or the product over the answer for all its tokens."""
    action: Literal["mask", "truncate"] = "mask"
    """Outside the bounds: weight 0, or limited to the bounds."""
    upper: Positive | None = 3.0
    """Largest weight; null means no upper bound."""
    lower: NonNegative | None = None
    """Smallest weight; null means no lower bound."""


class DynamicSamplingConfig(Section):
    """Which groups are worth training on (DAPO), judged by the task's own reward."""

    above: Finite | None = 0.0
    """A group's mean reward has to be greater than this; null means no such limit."""
    below: Finite | None = 1.0
    """A group's mean reward has to be less than this; null means no such limit."""
    at_most: Finite | None = None
    """A group's mean reward has to be at most this; null means no such limit."""
    contrast: bool = False
    """A group needs two different rewards."""


class VespoConfig(Section):
    """VESPO's gamma weight phi(w) = w^k exp(lambda (1 - w)), w the answer's importance ratio."""

    k_pos: Finite = 2.0
    """k for answers with advantage >= 0."""
    lambda_pos: Finite = 3.0
    """lambda for answers with advantage >= 0."""
    k_neg: Finite = 3.0
    """k for the others."""
    lambda_neg: Finite = 2.0
    """lambda for the others."""


class ExtensionsConfig(Section):
    """Settings that AReaL cannot express; `sweeps promote` says so when one is swept."""

    loss_aggregation: Literal["token-mean", "sequence-mean", "sequence-sum", "constant"] = (
        "token-mean"
    )
    """Denominator of the policy loss: trained tokens of the batch (AReaL, DAPO), per answer and
    then over answers (GRPO paper, TRL `grpo`), answers (TRL `luspo`), or answers *
    actor.max_new_tokens (Dr.GRPO)."""
    kl_loss_coef: NonNegative = 0.0
    """Weight of a KL term inside the loss (TRL `beta`, verl `kl_loss_coef`)."""
    kl_loss_estimator: Literal["k1", "k2", "k3"] = "k3"
    """Estimator of that term."""
    kl_loss_ratio_weighted: bool = False
    """Multiply that term by the importance ratio (TRL `use_bias_correction_kl`)."""
    ratio_cap: Positive | None = None
    """Largest unclipped ratio in PPO's minimum (TRL `delta`); null means none."""
    vespo: VespoConfig | None = None
    """Use VESPO's loss; null means the loss that `actor` asks for."""
    reward_std_about: Literal["subtracted-mean", "own-mean"] = "subtracted-mean"
    """What reward_norm's spread is taken around: the mean that was subtracted (AReaL), or the mean
    at the spread's own level (TRL `scale_rewards: batch`, LitePPO's paper)."""
    reward_weights: tuple[Finite, ...] | None = None
    """Weights of a task's reward components; null means 1 each."""
    multi_objective_aggregation: Literal["sum_then_normalize", "normalize_then_sum"] = (
        "sum_then_normalize"
    )
    """Add the components and normalize, or normalize each within its group first (GDPO)."""
    truncated_answers: Literal["keep", "mask", "drop"] = "keep"
    """Answers cut at the length limit: train on them; keep them out of the loss but in their
    group's statistics (TRL `mask_truncated_completions`); or leave them out of both."""
    sampler_correction: SamplerCorrectionConfig | None = None
    """TRL's importance weight between trainer and sampler; null turns it off."""
    off_policy_mask_threshold: Finite | None = None
    """Drop answers with negative advantage whose mean log-prob gap sampler - policy exceeds this
    (DeepSeek-V3.2); null turns it off."""
    dynamic_sampling: DynamicSamplingConfig | None = None
    """Drop groups that carry no signal (DAPO); null turns it off."""
    value_loss: Literal["mse", "huber"] = "mse"
    """Loss of the value function: half the squared error, or Huber with delta 10."""


class TrialConfig(Section):
    """One trial: what is trained, on what, how, from which seed."""

    seed: Annotated[int, Field(ge=0)] = 1
    """Every random stream derives from it; equal seeds share prompts, weights and noise."""
    policy: str = "tiny"
    """tiny (embedded), or `hf:MODEL`: a directory, a GGUF file, a name in the local hub cache, or
    smollm2-135m (docs/models.md)."""
    total_train_steps: Count = 60
    """Training batches."""
    task: TaskConfig = TaskConfig()
    """What the policy is trained on."""
    train_dataset: DatasetConfig = DatasetConfig()
    """The prompts of a step."""
    gconfig: GenerationConfig = GenerationConfig()
    """How answers are sampled."""
    rollout: RolloutConfig = RolloutConfig()
    """How far the sampler may lag behind the trainer."""
    actor: ActorConfig = ActorConfig()
    """The policy and how rewards become its update."""
    ref: RefConfig | None = RefConfig()
    """The reference policy of the KL penalty."""
    critic: CriticConfig | None = None
    """The value function; null means GRPO."""
    dynamic_bs: bool = False
    """Dynamic sampling lets the batch shrink instead of refilling it."""
    areal_compat: bool = False
    """Reproduce AReaL's known defects instead of the right behaviour."""
    evaluation: EvaluationConfig = EvaluationConfig()
    """The judge, outside the reward pipeline."""
    extensions: ExtensionsConfig = ExtensionsConfig()
    """Settings that AReaL cannot express."""
