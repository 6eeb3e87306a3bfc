"""Importance ratios: clip, level, staleness, filters, losses that use them."""

from collections.abc import Iterator

from sweeps.lint.subject import Subject
from sweeps.lint.types import (
    AREAL_READ,
    AREAL_RUN,
    CLAIMS,
    OWN_RUNS,
    TOY,
    Hit,
    follows,
    measured,
    refuted,
    reported,
    rule,
)

UNCLIPPED = 3.0
"""Ratios may quadruple before the clip acts."""
MANY_UPDATES = 8
VERY_STALE = 4
STALE_WITHOUT_CORRECTION = 2
"""Versions from which the decoupled loss failed without a correction."""
STALE_LIMIT = 4
"""Versions up to which plain PPO clipping held here and in AReaL's own study."""
TINY_CLIP = 0.005
TOKEN_SIZED_CLIP = 0.1
SEQUENCE_SIZED_CLIP = 0.001


def _clipped_loss(subject: Subject) -> bool:
    """The loss is PPO's, so a clip range is meant to hold it."""
    actor = subject.config.actor
    special = actor.use_sapo_loss or actor.use_cispo_loss
    return not special and subject.config.extensions.vespo is None


@rule(
    "clip-range-negative",
    severity="likely-harmful",
    keys=(
        "actor.eps_clip",
        "actor.eps_clip_higher",
        "actor.use_cispo_loss",
        "actor.use_sapo_loss",
        "extensions.vespo",
    ),
    claim="With a negative clip range, fresh tokens with a positive advantage have no gradient.",
    evidence=follows(
        "ratio 1 lies above the upper bound, so the clipped branch is the smaller one"
    ),
    source=AREAL_RUN,
)
def clip_range_negative(subject: Subject) -> Iterator[Hit]:
    """The interval excludes ratio 1."""
    if not _clipped_loss(subject):
        return
    for key in ("actor.eps_clip", "actor.eps_clip_higher"):
        value = subject.value(key)
        if value is not None and value < 0:
            yield Hit(
                key,
                f"{subject.show(key)}: ratio 1 lies outside the clip range, so good answers are "
                "cut off before the first update and only bad ones are learned from",
                f"set {subject.name(key)} to 0.2",
            )


@rule(
    "clip-range-zero",
    severity="worth-knowing",
    keys=(
        "actor.eps_clip",
        "actor.eps_clip_higher",
        "actor.ppo_n_minibatches",
        "actor.prox_logp_method",
        "actor.recompute_logprob",
        "actor.use_cispo_loss",
        "actor.use_decoupled_loss",
        "actor.use_sapo_loss",
        "extensions.vespo",
        "rollout.max_head_offpolicyness",
    ),
    claim="With eps_clip 0, a token stops learning from a batch as soon as its ratio has moved.",
    evidence=measured("4 updates: 0.92/0.95/0.85 in place of 0.96 to 0.99, slower on the way"),
    source="own runs of this trainer, 3 seeds",
)
def clip_range_zero(subject: Subject) -> Iterator[Hit]:
    """No room around ratio 1."""
    if not _clipped_loss(subject) or subject.ratio_is_one:
        return
    for key in ("actor.eps_clip", "actor.eps_clip_higher"):
        if subject.value(key) == 0 and subject.gives(key):
            yield Hit(
                key,
                f"{subject.show(key)}: there is no room around ratio 1, so only the first update "
                "of a batch teaches, and at half strength",
                f"set {subject.name(key)} to 0.2",
            )


@rule(
    "stale-without-clip",
    severity="likely-harmful",
    keys=(
        "actor.eps_clip",
        "actor.eps_clip_higher",
        "actor.use_cispo_loss",
        "actor.use_decoupled_loss",
        "actor.use_sapo_loss",
        "extensions.vespo",
        "rollout.max_head_offpolicyness",
    ),
    claim="Rollouts four or more versions old without a ratio clip make the run unstable.",
    evidence=measured(
        "staleness 8: 0.17/0.40/0.16 without a clip, 0.84/0.90/0.71 with eps_clip 0.2; KL 1.3 "
        "against 0.1"
    ),
    source=f"{CLAIMS}; {OWN_RUNS}; thinking-machines-lab/tinker-cookbook #822",
)
def stale_without_clip(subject: Subject) -> Iterator[Hit]:
    """Old samples and nothing that limits their ratios."""
    if not _clipped_loss(subject) or subject.clip_upper < UNCLIPPED:
        return
    if subject.config.actor.use_decoupled_loss or subject.staleness < VERY_STALE:
        return
    key = _upper_key(subject)
    yield Hit(
        key,
        f"{subject.show(key)} with {subject.show('rollout.max_head_offpolicyness')}: ratios "
        "between the policy and samples that old reach the hundreds, and nothing clips them",
        f"set {subject.name(key)} to 0.2, or lower rollout.max_head_offpolicyness",
        also=("rollout.max_head_offpolicyness",),
    )


def _upper_key(subject: Subject) -> str:
    none = subject.config.actor.eps_clip_higher is None
    return "actor.eps_clip" if none else "actor.eps_clip_higher"


@rule(
    "many-updates-without-clip",
    severity="likely-harmful",
    keys=(
        "actor.eps_clip",
        "actor.eps_clip_higher",
        "actor.ppo_n_minibatches",
        "actor.use_cispo_loss",
        "actor.use_sapo_loss",
        "extensions.vespo",
    ),
    claim="Eight or more updates per batch without a ratio clip collapse some seeds.",
    evidence=measured(
        "8 updates: 0.97 with every answer truncated, 0.45 and 0.94 without a clip; "
        "0.93/0.91/0.85 with it. 1 or 2 updates need none"
    ),
    source=f"own runs of this trainer, 3 seeds; {OWN_RUNS}; huggingface/trl #2980",
)
def many_updates_without_clip(subject: Subject) -> Iterator[Hit]:
    """The policy runs away from the batch that it trains on."""
    if not _clipped_loss(subject) or subject.clip_upper < UNCLIPPED:
        return
    if subject.config.actor.ppo_n_minibatches >= MANY_UPDATES:
        key = _upper_key(subject)
        yield Hit(
            key,
            f"{subject.show(key)} with {subject.show('actor.ppo_n_minibatches')}: the last updates "
            "use ratios far from 1 that nothing clips",
            f"set {subject.name(key)} to 0.2, or make fewer updates",
            also=("actor.ppo_n_minibatches",),
        )


@rule(
    "clip-inert",
    severity="worth-knowing",
    keys=(
        "actor.eps_clip",
        "actor.ppo_n_minibatches",
        "actor.prox_logp_method",
        "actor.recompute_logprob",
        "actor.use_cispo_loss",
        "actor.use_decoupled_loss",
        "actor.use_sapo_loss",
        "extensions.vespo",
        "rollout.max_head_offpolicyness",
    ),
    claim="With one update per batch every ratio is 1, so the clip range never acts.",
    evidence=measured(
        "clip fraction 0 and ratio 1 in all runs with one update; AReaL's GSM8K "
        "example is one of them"
    ),
    source=f"{CLAIMS}; {OWN_RUNS}; huggingface/trl #3452, #2703",
)
def clip_inert(subject: Subject) -> Iterator[Hit]:
    """A clip range that nothing reaches."""
    if subject.ratio_is_one and subject.gives("actor.eps_clip") and _clipped_loss(subject):
        yield Hit(
            "actor.eps_clip",
            f"{subject.show('actor.eps_clip')} with {subject.show('actor.ppo_n_minibatches')}: the "
            "only update starts from the policy that the ratio is taken against, so the ratio is "
            "1 and a sweep over the clip range would compare equal runs",
            f"set {subject.name('actor.ppo_n_minibatches')} to 2 or more if the clip is to act",
            also=("actor.ppo_n_minibatches",),
        )


@rule(
    "ratio-setting-inert",
    severity="no-effect",
    keys=(
        "actor.c_clip",
        "actor.eps_clip_higher",
        "actor.gae_lambda",
        "actor.importance_sampling_level",
        "actor.kl_ctl",
        "actor.ppo_n_minibatches",
        "actor.prox_logp_method",
        "actor.recompute_logprob",
        "actor.use_cispo_loss",
        "actor.use_decoupled_loss",
        "actor.use_sapo_loss",
        "critic",
        "extensions.vespo",
        "rollout.max_head_offpolicyness",
    ),
    claim="With one update per batch dual clip, clip-higher and the ratio's level do nothing.",
    evidence=measured("runs with and without the setting are the same, step by step"),
    source=f"{CLAIMS}; {OWN_RUNS}; {AREAL_READ}",
)
def ratio_setting_inert(subject: Subject) -> Iterator[Hit]:
    """Settings that somebody chose for ratios that are always 1."""
    actor = subject.config.actor
    if not subject.ratio_is_one or not _clipped_loss(subject):
        return
    constant = actor.kl_ctl == 0 and actor.gae_lambda == 1 and subject.config.critic is None
    for key, chosen in (
        ("actor.eps_clip_higher", actor.eps_clip_higher is not None),
        ("actor.c_clip", actor.c_clip is not None),
        (
            "actor.importance_sampling_level",
            actor.importance_sampling_level == "sequence" and constant,
        ),
    ):
        if chosen and subject.gives(key):
            yield Hit(
                key,
                f"{subject.show(key)} with {subject.show('actor.ppo_n_minibatches')}: there is one "
                "update per batch, every ratio is 1, and this setting changes nothing",
                f"set {subject.name('actor.ppo_n_minibatches')} to 2 or more, or leave it out",
                also=("actor.ppo_n_minibatches",),
            )


@rule(
    "decoupled-uncorrected",
    severity="likely-harmful",
    keys=(
        "actor.m2_threshold",
        "actor.rejection_sampling",
        "actor.use_decoupled_loss",
        "extensions.off_policy_mask_threshold",
        "extensions.sampler_correction",
        "rollout.max_head_offpolicyness",
    ),
    claim="The decoupled loss without rejection_sampling has no correction for stale samples.",
    evidence=measured(
        "staleness 2: 0.88/0.40/0.51, staleness 8: 0.54/0.40/0.49; with rejection_sampling "
        "0.81/0.46/0.85, with the plain loss 0.84/0.90/0.71"
    ),
    source=f"{CLAIMS}; {OWN_RUNS}; {AREAL_RUN} (behaviour log-probs do not enter the loss)",
)
def decoupled_uncorrected(subject: Subject) -> Iterator[Hit]:
    """Decoupled, quite stale, nothing that weighs or filters."""
    if _uncorrected(subject) and subject.staleness >= STALE_WITHOUT_CORRECTION:
        yield _uncorrected_hit(subject)


@rule(
    "decoupled-uncorrected-mild",
    severity="worth-knowing",
    keys=(
        "actor.m2_threshold",
        "actor.rejection_sampling",
        "actor.use_decoupled_loss",
        "extensions.off_policy_mask_threshold",
        "extensions.sampler_correction",
        "rollout.max_head_offpolicyness",
    ),
    claim="The decoupled loss without rejection_sampling is PPO around the proximal policy only.",
    evidence=follows("behaviour log-probs do not enter the loss; not measured below staleness 2"),
    source=AREAL_RUN,
)
def decoupled_uncorrected_mild(subject: Subject) -> Iterator[Hit]:
    """The same with little staleness."""
    if _uncorrected(subject) and subject.staleness < STALE_WITHOUT_CORRECTION:
        yield _uncorrected_hit(subject)


def _uncorrected(subject: Subject) -> bool:
    actor, extensions = subject.config.actor, subject.config.extensions
    held = (
        actor.rejection_sampling is not None
        or actor.m2_threshold is not None
        or extensions.sampler_correction is not None
        or extensions.off_policy_mask_threshold is not None
    )
    return actor.use_decoupled_loss and not held


def _uncorrected_hit(subject: Subject) -> Hit:
    return Hit(
        "actor.use_decoupled_loss",
        f"{subject.show('actor.use_decoupled_loss')} without actor.rejection_sampling at "
        f"{subject.show('rollout.max_head_offpolicyness')}: the clip is taken around the proximal "
        "policy, and the policy that sampled does not enter the loss at all",
        "set actor.rejection_sampling to {upper: 5.0}",
        also=("actor.rejection_sampling", "rollout.max_head_offpolicyness"),
    )


@rule(
    "stale-coupled",
    severity="worth-knowing",
    keys=("actor.use_decoupled_loss", "rollout.max_head_offpolicyness"),
    claim="Plain PPO clipping around a very stale policy slows learning down.",
    evidence=measured("staleness 4: 0.82 to 0.91; 8: 0.85 to 0.89; 0 to 2: 0.93 to 0.96"),
    source=f"AReaL v0.3 blog, table 3 (one run per cell); {OWN_RUNS}",
)
def stale_coupled(subject: Subject) -> Iterator[Hit]:
    """Staleness beyond what the plain loss held."""
    if subject.config.actor.use_decoupled_loss or subject.staleness <= STALE_LIMIT:
        return
    yield Hit(
        "rollout.max_head_offpolicyness",
        f"{subject.show('rollout.max_head_offpolicyness')} with "
        f"{subject.show('actor.use_decoupled_loss')}: much of every batch is clipped because the "
        "sampler is that far behind",
        "set actor.use_decoupled_loss to true with actor.rejection_sampling, or lower it to 4",
        also=("actor.use_decoupled_loss",),
    )


@rule(
    "stale-high-lr",
    severity="likely-harmful",
    keys=("actor.optimizer.lr", "rollout.max_head_offpolicyness"),
    claim="What staleness does depends on the learning rate: 4 versions at 2e-3 collapse here.",
    evidence=measured("staleness 4 at lr 2e-3: 0.54/0.26/0.43; at 5e-4: 0.82 to 0.91"),
    source=f"own runs of this trainer, 3 seeds; {OWN_RUNS}",
)
def stale_high_lr(subject: Subject) -> Iterator[Hit]:
    """The embedded policy with both at once."""
    lr = subject.config.actor.optimizer.lr
    if subject.tiny and subject.staleness >= VERY_STALE and lr >= 2e-3:
        yield Hit(
            "actor.optimizer.lr",
            f"{subject.show('actor.optimizer.lr')} with "
            f"{subject.show('rollout.max_head_offpolicyness')}: the policy moves too far within "
            "the versions that a sample is old",
            "halve one of them, then the other",
            also=("rollout.max_head_offpolicyness",),
        )


@rule(
    "filter-drops-everything",
    severity="fatal",
    keys=(
        "actor.rejection_sampling.action",
        "actor.rejection_sampling.lower",
        "actor.rejection_sampling.metric",
        "actor.rejection_sampling.upper",
    ),
    claim="A filter whose bounds exclude fresh data drops every fresh token.",
    evidence=measured("AReaL with lower 1.5, or kl_k1 and upper -0.1: 0 of 17 tokens kept"),
    source=AREAL_RUN,
)
def filter_drops_everything(subject: Subject) -> Iterator[Hit]:
    """Bounds that refuse ratio 1 or divergence 0."""
    settings = subject.config.actor.rejection_sampling
    if settings is None or settings.action == "clamp":
        return
    fresh = 1.0 if settings.metric == "ratio" else 0.0
    low = settings.lower is not None and settings.lower > fresh
    high = settings.metric == "kl_k1" and settings.upper < fresh
    if not (low or high):
        return
    key = f"actor.rejection_sampling.{'lower' if low else 'upper'}"
    yield Hit(
        key,
        f"{subject.show(key)} with {subject.show('actor.rejection_sampling.metric')}: fresh data "
        f"has {fresh:g} and is refused, so only stale tokens, or none, are trained on",
        f"set {subject.name(key)} so that {fresh:g} lies inside the bounds",
        also=("actor.rejection_sampling.metric",),
    )


@rule(
    "filter-inert",
    severity="no-effect",
    keys=(
        "actor.rejection_sampling.action",
        "actor.rejection_sampling.lower",
        "actor.rejection_sampling.metric",
        "actor.use_decoupled_loss",
        "actor.use_sapo_loss",
    ),
    claim="rejection_sampling without use_decoupled_loss compares a policy with itself.",
    evidence=measured("AReaL: ratio 1 and divergence 0 at every token"),
    source=AREAL_RUN,
)
def filter_inert(subject: Subject) -> Iterator[Hit]:
    """A filter that lets everything pass."""
    actor = subject.config.actor
    if actor.rejection_sampling is None or actor.use_decoupled_loss or actor.use_sapo_loss:
        return
    if any(True for _ in filter_drops_everything.check(subject)):
        return
    yield Hit(
        "actor.rejection_sampling",
        f"{subject.name('actor.rejection_sampling')} with "
        f"{subject.show('actor.use_decoupled_loss')}: proximal and behaviour policy are then the "
        "same, so every ratio is 1 and nothing is filtered",
        "set actor.use_decoupled_loss to true, or leave the filter out",
        also=("actor.use_decoupled_loss",),
    )


@rule(
    "m2-threshold-negative",
    severity="fatal",
    keys=("actor.m2_threshold",),
    claim="A negative m2_threshold keeps a single token of every batch.",
    evidence=measured(
        "0.12, below the start; a mean of squares is never below 0, so one token is kept"
    ),
    source=f"{CLAIMS}; {AREAL_RUN}",
)
def m2_threshold_negative(subject: Subject) -> Iterator[Hit]:
    """A threshold that no batch meets."""
    threshold = subject.config.actor.m2_threshold
    if threshold is not None and threshold < 0:
        yield Hit(
            "actor.m2_threshold",
            f"{subject.show('actor.m2_threshold')}: no mean of squares is that small, so tokens "
            "are dropped until one is left",
            f"set {subject.name('actor.m2_threshold')} to 0.04",
        )


@rule(
    "no-clip-with-train-logp",
    severity="no-effect",
    keys=("actor.eps_clip", "actor.prox_logp_method", "actor.use_decoupled_loss"),
    claim="prox_logp_method reuse_train_logp makes every ratio 1: nothing is ever clipped.",
    evidence=follows("the denominator is the numerator, detached"),
    source=AREAL_READ,
)
def no_clip_with_train_logp(subject: Subject) -> Iterator[Hit]:
    """A clip range around the policy's own log-probs."""
    actor = subject.config.actor
    if actor.use_decoupled_loss and actor.prox_logp_method == "reuse_train_logp":
        yield Hit(
            "actor.prox_logp_method",
            f"{subject.show('actor.prox_logp_method')}: the ratio is the policy over itself, so "
            f"{subject.show('actor.eps_clip')} never acts, also with many updates per batch",
            "use recompute where a clip is wanted",
            also=("actor.eps_clip",),
        )


@rule(
    "cispo-cap-below-one",
    severity="likely-harmful",
    keys=("actor.eps_clip_higher", "actor.use_cispo_loss"),
    claim="A CISPO cap below 1 sets the weight of every token to the cap.",
    evidence=measured(
        "staleness 8: 0.52/0.38/0.11 in place of 0.73/0.84/0.75 with a cap of 5; on fresh samples "
        "no difference, Adam forgives the smaller gradient"
    ),
    source="own runs of this trainer, 3 seeds; TRL 1.16.0, read: epsilon_high falls back to 0.2",
)
def cispo_cap_below_one(subject: Subject) -> Iterator[Hit]:
    """The cap lies below the weight of fresh data."""
    actor = subject.config.actor
    higher = actor.eps_clip_higher
    if not actor.use_cispo_loss or higher is None or higher >= 0:
        return
    trl = subject.dialect == "trl"
    given = subject.other.get("epsilon_high")
    shown = (
        f"loss_type=cispo with epsilon_high={'null' if given is None else given}"
        if trl
        else f"{subject.show('actor.eps_clip_higher')} with use_cispo_loss"
    )
    yield Hit(
        "actor.eps_clip_higher",
        f"{shown}: the weight is capped at {1 + higher:g}, below the 1 of fresh data, so every "
        "token gets the same weight and nothing corrects for stale samples",
        "set epsilon_high to 5.0 (TRL's cap itself)"
        if trl
        else f"set {subject.name('actor.eps_clip_higher')} to 4.0",
        also=("actor.use_cispo_loss",),
    )


@rule(
    "token-clip-on-sequences",
    severity="worth-knowing",
    keys=(
        "actor.eps_clip",
        "actor.importance_sampling_level",
        "actor.ppo_n_minibatches",
        "actor.recompute_logprob",
        "actor.use_cispo_loss",
        "actor.use_decoupled_loss",
        "actor.use_sapo_loss",
        "extensions.vespo",
        "rollout.max_head_offpolicyness",
    ),
    claim="Sequence-level ratios are said to need a clip of 3e-4 in place of 0.2.",
    evidence=refuted(
        "0.2 and 3e-4 end alike (0.94 to 0.96 and 0.93 to 0.94); at 0.2 nearly nothing is clipped, "
        "at 3e-4 a fifth"
    ),
    source=f"GSPO, arXiv 2507.18071; huggingface/trl #3834; volcengine/verl #2775; {OWN_RUNS}",
)
def token_clip_on_sequences(subject: Subject) -> Iterator[Hit]:
    """A clip of token size around geometric means."""
    actor = subject.config.actor
    if actor.importance_sampling_level != "sequence" or not _clipped_loss(subject):
        return
    if TOKEN_SIZED_CLIP <= actor.eps_clip < UNCLIPPED and not subject.ratio_is_one:
        yield Hit(
            "actor.eps_clip",
            f"{subject.show('actor.eps_clip')} with "
            f"{subject.show('actor.importance_sampling_level')}: a geometric mean over an answer "
            "varies about 1/length as much as a token's ratio, so this clip hardly ever acts; it "
            "did no harm in our runs",
            "3e-3 to 3e-4 is what clips; whether clipping helps is open",
            also=("actor.importance_sampling_level",),
        )


@rule(
    "sequence-clip-on-tokens",
    severity="worth-knowing",
    keys=(
        "actor.eps_clip",
        "actor.importance_sampling_level",
        "actor.ppo_n_minibatches",
        "actor.use_cispo_loss",
        "actor.use_sapo_loss",
        "extensions.vespo",
    ),
    claim="A clip range made for sequences cuts off many token ratios.",
    evidence=measured(
        "eps_clip 0.002, 8 updates: 25 % clipped, 0.81 to 0.93 in place of 0.89-0.93"
    ),
    source=OWN_RUNS,
)
def sequence_clip_on_tokens(subject: Subject) -> Iterator[Hit]:
    """A clip of sequence size around token ratios."""
    actor = subject.config.actor
    if actor.importance_sampling_level != "token" or not _clipped_loss(subject):
        return
    if 0 < actor.eps_clip <= TINY_CLIP and not subject.ratio_is_one:
        yield Hit(
            "actor.eps_clip",
            f"{subject.show('actor.eps_clip')} with "
            f"{subject.show('actor.importance_sampling_level')}: a large share of the tokens stops "
            "learning after the first update of a batch",
            f"set {subject.name('actor.eps_clip')} to 0.2",
            also=("actor.importance_sampling_level",),
        )


@rule(
    "sequence-level-without-std",
    severity="worth-knowing",
    keys=(
        "actor.adv_norm.std_level",
        "actor.importance_sampling_level",
        "actor.reward_norm.std_level",
    ),
    claim="Sequence-level ratios without std (GSPO with Dr.GRPO) are said to diverge.",
    evidence=refuted(
        "with 8 updates 0.95/0.95/0.84, the geometric mean stays below 1.5; only without a clip "
        "and with 8 updates or staleness 8 it gets weaker (0.69 to 0.93)"
    ),
    source=f"{CLAIMS}; {OWN_RUNS}; {TOY}",
)
def sequence_level_without_std(subject: Subject) -> Iterator[Hit]:
    """The combination that is blamed."""
    actor = subject.config.actor
    no_std = all(norm.std_level is None for _, norm in subject.norms())
    if actor.importance_sampling_level != "sequence" or not no_std or not subject.norms():
        return
    yield Hit(
        "actor.importance_sampling_level",
        f"{subject.show('actor.importance_sampling_level')} without any std level: blamed for "
        "divergence after a few updates; it did not diverge in our runs",
        "nothing to change while a ratio clip is on",
        also=("actor.reward_norm.std_level",),
    )


@rule(
    "sequence-level-token-mean",
    severity="worth-knowing",
    keys=("actor.importance_sampling_level", "extensions.loss_aggregation"),
    claim="Sequence-level ratios under a token mean weigh an answer by its length.",
    evidence=reported("TRL warns about it since June 2026; AReaL knows no other denominator"),
    source=f"huggingface/trl #3823, #6042; {AREAL_RUN}",
)
def sequence_level_token_mean(subject: Subject) -> Iterator[Hit]:
    """One ratio per answer, counted once per token."""
    aggregation = subject.config.extensions.loss_aggregation
    sequences = subject.config.actor.importance_sampling_level == "sequence"
    if (
        sequences
        and aggregation == "token-mean"
        and subject.gives("actor.importance_sampling_level")
    ):
        yield Hit(
            "actor.importance_sampling_level",
            f"{subject.show('actor.importance_sampling_level')} with a token mean: the answer's "
            "ratio and mean advantage are summed once per token, so long answers dominate; GSPO's "
            "paper averages per answer",
            "TRL: loss_type grpo; verl: loss_agg_mode seq-mean-token-mean; AReaL has no switch",
        )


RULES = (
    filter_drops_everything,
    m2_threshold_negative,
    clip_range_negative,
    stale_without_clip,
    many_updates_without_clip,
    decoupled_uncorrected,
    stale_high_lr,
    cispo_cap_below_one,
    filter_inert,
    ratio_setting_inert,
    no_clip_with_train_logp,
    clip_inert,
    clip_range_zero,
    decoupled_uncorrected_mild,
    stale_coupled,
    token_clip_on_sequences,
    sequence_clip_on_tokens,
    sequence_level_without_std,
    sequence_level_token_mean,
)
