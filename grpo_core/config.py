"""TrialConfig: everything that decides a trial's outcome, under AReaL's names.

Field names, nesting and defaults follow AReaL's `areal/api/cli_args.py` (PPOActorConfig, NormConfig,
RejectionSamplingConfig, GenerationHyperparameters, OptimizerConfig). Settings that AReaL does not have
live under `task`, `evaluation` and `extensions`. The text beneath a field is what `sweeps explain`
prints. Rules that concern several fields are in `grpo_core.rules`.
"""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

Level = Literal["batch", "group"]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=1)]


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
    """Smallest accepted value of the metric; null means no lower bound."""


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
    eps_clip_higher: NonNegative | None = None
    """Upper clip range when it differs (DAPO); null means symmetric."""
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
    reward_clip: Positive = 20.0
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
    gae_lambda: Share = 1.0
    """Lambda of GAE; 1 gives the sum of all later rewards."""
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


class CriticConfig(Section):
    """The value function of PPO; null (GRPO) means none (AReaL's PPOCriticConfig)."""

    optimizer: OptimizerConfig = OptimizerConfig()
    """The optimizer of the value function."""
    ppo_n_minibatches: Count = 4
    """Optimizer updates of the value function per batch."""
    eps_clip: NonNegative = 0.5
    """Clip range of the value loss."""
    mask_no_eos_with_zero: bool = False
    """Exclude truncated answers' bootstrap value."""


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
    """A name from TASKS."""
    reward_right: Finite = 1.0
    """Reward of an answer that passes the verifier."""
    reward_wrong: Finite = 0.0
    """Reward of an answer that does not."""
    verifier: Literal["strict", "weak", "graded"] = "strict"
    """strict: the last answer decides; weak: any answer counts (can be gamed); graded: partial
    credit per letter between reward_wrong and reward_right."""


class EvaluationConfig(Section):
    """The judge: the strict check on held-out prompts, outside the reward pipeline."""

    prompts: Annotated[int, Field(ge=8, le=4096)] = 256
    """Fixed held-out prompts before and after training."""
    every: Annotated[int, Field(ge=0)] = 10
    """Steps between the smaller evaluations on the way; 0 turns them off."""
    interim_prompts: Annotated[int, Field(ge=8, le=4096)] = 64
    """Prompts of an evaluation on the way."""


class ExtensionsConfig(Section):
    """Settings that AReaL cannot express; `sweeps promote` says so when one is swept."""

    loss_aggregation: Literal["token-mean", "sequence-mean", "constant"] = "token-mean"
    """Denominator of the policy loss: trained tokens of the batch (AReaL, DAPO), per answer and
    then over answers (GRPO paper, TRL `grpo`), or answers * max_new_tokens (Dr.GRPO)."""
    kl_loss_coef: NonNegative = 0.0
    """Weight of a KL term inside the loss (TRL `beta`, verl `kl_loss_coef`)."""
    kl_loss_estimator: Literal["k1", "k2", "k3"] = "k3"
    """Estimator of that term."""


class TrialConfig(Section):
    """One trial: what is trained, on what, how, from which seed."""

    seed: Annotated[int, Field(ge=0)] = 1
    """Every random stream derives from it; equal seeds share prompts, weights and noise."""
    policy: str = "tiny"
    """A name from POLICIES."""
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
