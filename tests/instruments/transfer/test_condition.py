"""The condition number with known answers: diagonal worlds, other bases, rank deficiency, noise."""

from __future__ import annotations

import math

import numpy as np
import pytest

from attnlens import condition_number, known_condition_number
from attnlens.claims.exchangeability import condition_number as claim
from attnlens.claims.exchangeability import condition_reads
from attnlens.claims.exchangeability.condition_encoder import pairs, target
from attnlens.core.checks import BadInput
from attnlens.core.status import Status
from attnlens.instruments.transfer.condition import predicts
from attnlens.instruments.transfer.kappa import estimate, interval, log_estimate, unseen_bound
from attnlens.worlds.seeding import episode_keys

RNG = np.random.default_rng(2)
D = 4
WEAK = 0.3
MOMENT = np.diag([1.0, 1.0, 1.0, WEAK**2])
HEAD = np.array([1.0, 0.0, 0.0, 1.0]) / math.sqrt(2)
KAPPA = math.sqrt((1 + WEAK**-2) / 2)


def test_a_diagonal_world_has_the_value_by_hand():
    assert known_condition_number(HEAD, query_moment=MOMENT) == pytest.approx(KAPPA, rel=1e-14)
    assert known_condition_number(HEAD) == pytest.approx(1, rel=1e-14)
    assert known_condition_number(HEAD, mixing=2 * np.eye(D)) == pytest.approx(0.5, rel=1e-14)


def test_kappa_squared_is_the_largest_ratio_of_squares():
    """κ² is the maximum over δ of ⟨c, δ⟩²/(δᵀ Aᵀ Σ A δ), which is attained at (AᵀΣA)⁻¹ c."""
    mixing = RNG.standard_normal((5, D))
    root = RNG.standard_normal((5, 5))
    moment, head = root @ root.T, RNG.standard_normal(D)
    square = known_condition_number(head, mixing, moment) ** 2
    gram = mixing.T @ moment @ mixing
    best = np.linalg.solve(gram, head)
    assert (head @ best) ** 2 / (best @ gram @ best) == pytest.approx(square, rel=1e-9)
    others = RNG.standard_normal((1000, D))
    ratios = (others @ head) ** 2 / np.einsum("ni,ij,nj->n", others, gram, others)
    assert ratios.max() <= square


@pytest.mark.parametrize("weak", [0.0, 1e-17])
def test_kappa_is_infinite_outside_of_the_row_space(weak: float):
    turn = np.linalg.qr(RNG.standard_normal((D, D)))[0]
    moment = turn @ np.diag([1.0, 1.0, 1.0, weak]) @ turn.T  # singular up to rounding
    assert known_condition_number(turn @ HEAD, query_moment=moment) == math.inf
    inside = turn @ [1.0, 0.0, 0.0, 0.0]
    assert known_condition_number(inside, query_moment=moment) == pytest.approx(1, rel=1e-7)
    # With a smaller tolerance κ is finite, and large.
    assert known_condition_number(HEAD, query_moment=np.diag([1, 1, 1, 1e-12]), tolerance=1e-9) == (
        pytest.approx(math.sqrt((1 + 1e12) / 2), rel=1e-9)
    )


def task(rows: int, noise: float, seed: int = 0, queries: int = 32, moment=MOMENT):
    """Latents, answers at queries whose second moment is exactly `moment`, and a target."""
    random = np.random.default_rng([7, seed])
    bank = random.standard_normal((queries, D))
    bank = np.linalg.qr(bank)[0] * math.sqrt(queries) @ np.sqrt(moment)
    latent = random.standard_normal((rows, D))
    answers = latent @ bank.T + noise * random.standard_normal((rows, queries))
    return latent, answers, latent @ HEAD + noise * random.standard_normal(rows)


def test_without_noise_the_estimate_is_exact_in_any_basis():
    latent, answers, target = task(200, 0.0)
    # The whitening and B have condition numbers below 10: 1e−12 is thousands of rounding units.
    assert estimate(latent, answers, target[:, None]).kappa == pytest.approx(KAPPA, rel=1e-12)
    turned = latent @ RNG.standard_normal((D, D)) + RNG.standard_normal(D)
    assert estimate(turned, answers, target[:, None]).kappa == pytest.approx(KAPPA, rel=1e-10)


def test_noise_does_not_bias_the_estimate():
    """The noise is as large as the latents: without the correction, the bias would be Σσ²/n times
    κ². The mean over 200 data sets is within 4.5 standard errors plus 1 % for terms of second
    order."""
    kappas = [
        estimate(latent, answers, target[:, None]).kappa
        for latent, answers, target in (task(400, 1.0, seed) for seed in range(200))
    ]
    error = np.std(kappas) / math.sqrt(200)
    assert abs(np.mean(kappas) - KAPPA) < 4.5 * error + 0.01 * KAPPA


def test_kappa_is_infinite_for_a_direction_that_pretraining_does_not_cover():
    uncovered = np.diag([1.0, 1.0, 1.0, 0.0])
    for noise in (0.0, 0.5):
        result = condition_number(*task(400, noise, moment=uncovered), resamples=24)
        assert result.kappa.value == math.inf
        # `outside` is the share of c that is not covered: a half, up to the sampling error of the
        # covariance of 400 latents.
        assert result.kappa.status is Status.NOT_COVERED
        assert 0.4 < result.kappa.outside < 0.6
        assert "no more than noise" in str(result)
    latent, answers, _ = task(400, 0.5, moment=uncovered)
    inside = latent[:, 0] + 0.5 * np.random.default_rng(1).standard_normal(400)
    result = condition_number(latent, answers, inside, resamples=24)
    assert abs(result.kappa.value - 1) < 4.5 * result.kappa.standard_error


def test_several_outputs_have_the_kappa_of_the_worst():
    latent, answers, _ = task(300, 0.0)
    result = estimate(latent, answers, latent[:, [0, 3]])
    assert result.kappa == pytest.approx(1 / WEAK, rel=1e-12)


def test_the_interval_contains_the_estimate_when_features_are_many():
    """There are a sixth as many features as samples, so resampling itself shifts κ, nearly always
    to one side."""
    for seed in range(3):
        random = np.random.default_rng(seed)
        z = random.normal(size=(200, 32))
        label = z @ random.normal(size=32) + 5 * random.normal(size=200) > 0
        result = condition_number(z, z, label.astype(int), resamples=50)
        low, high = np.log(result.interval)
        assert low < np.log(result.kappa.value) < high
        # The interval is at least as wide as a normal one, up to the noise of 50 resamples.
        assert high - low > result.kappa.half_width() / result.kappa.value


@pytest.mark.slow
@pytest.mark.parametrize("weak", [WEAK, 0.1, 0.05, 0.02])
def test_intervals_cover_in_weak_and_unseen_directions(weak: float):
    """The directions range from one that is clearly seen to one that cannot be told from noise.
    With coverage 0.95, fewer than 66 of 75 intervals cover with probability 1/200. When the noise
    was subtracted once instead of twice, the coverage was 0.92, 0.82, 0.67 and 0."""
    true, covered, unbounded = math.sqrt((1 + weak**-2) / 2), 0, 0
    for seed in range(75):
        latent, answers, label = task(200, 0.5, seed, moment=np.diag([1.0, 1.0, 1.0, weak**2]))
        targets = label[:, None]
        result = estimate(latent, answers, targets)
        random = np.random.default_rng(seed)
        logs = np.array(
            [
                log_estimate(latent, answers, targets, random.integers(200, size=200), 2.0)
                for _ in range(60)
            ]
        )
        low, high = interval(result, logs, latent, answers, targets)
        covered += low <= true <= high
        unbounded += math.isinf(high)
        assert low < math.inf
    assert covered >= 66
    assert (unbounded == 75) == (weak == 0.02)


@pytest.mark.slow
def test_the_standard_error_of_the_transfer_error_is_that_of_new_data():
    """Without the factor for overlapping folds, the reported standard error was 0.82 of the true
    one. The spread of 150 data sets is known to within 1/√300, so the ratio 1 has 4 standard errors
    from 0.77 to 1.23."""
    errors = []
    for seed in range(150):
        latent, answers, label = task(60, 0.5, seed, queries=4)
        errors.append(condition_number(latent, answers, label, resamples=24).error)
    spread = np.std([error.value for error in errors], ddof=1)
    reported = math.sqrt(np.mean([error.standard_error**2 for error in errors]))
    assert 0.85 < reported / spread < 1.23


def test_an_unseen_direction_has_a_lower_bound():
    """Noise hides the coverage of the weak direction: the true κ is finite, and above the bound."""
    data = [task(200, 0.5, seed, moment=np.diag([1.0, 1.0, 1.0, 0.02**2])) for seed in range(20)]
    true = math.sqrt((1 + 0.02**-2) / 2)
    for latent, answers, label in data:
        bound = unseen_bound(latent, answers, label[:, None])
        # For δ = e₄ the bound is |c₄| √k/e_B with e_B about σ(√32 + √4 + 3)/√200: 10.6 of 35.
        # Losses in ĉ, in the other directions and by the choice of δ leave at least a third of
        # that.
        assert 10.6 / 3 < bound < true
    latent, answers, label = data[-1]
    bound = unseen_bound(latent, answers, label[:, None])
    result = condition_number(latent, answers, label, resamples=24)
    assert result.kappa.value == math.inf
    assert result.interval == (pytest.approx(bound, rel=1e-12), math.inf)
    assert f"at least {bound:.3g}" in str(result)


def test_kappa_error_and_scores_are_all_printed():
    latent, answers, target = task(200, 0.3)
    numbers = condition_number(latent, answers, target, resamples=50)
    assert abs(numbers.kappa.value - KAPPA) < 4.5 * numbers.kappa.standard_error
    assert numbers.interval[0] < numbers.kappa.value < numbers.interval[1]
    # The error of a linear head on the latents is the share of the noise, 0.09 of 1.09, and a few
    # per cent for fitting 5 parameters on 160 rows.
    assert abs(numbers.error.value - 0.09 / 1.09) < 0.03
    classes = condition_number(latent, (latent[:, 0] > 0).astype(int), (target > 0).astype(int))
    for result, missing in ((numbers, 2), (classes, 0)):
        text = str(result)
        assert text.count("not defined") == missing
        for name in ("condition number", "transfer error", "LogME", "H-score", "LEEP"):
            assert name in text
    assert classes.scores["LEEP"].value <= 0
    of_classes = condition_number(
        latent, answers, (target > 0).astype(int), source=np.full((200, 2), 0.5), resamples=24
    )
    entropy = -np.mean(np.log(np.where(target > 0, (target > 0).mean(), (target <= 0).mean())))
    # A row is scored by class shares that leave it out, which costs about 1/200.
    assert -entropy - 2 / 200 < of_classes.scores["LEEP"].value < -entropy


def test_error_and_scores_are_those_of_the_frozen_features():
    """The frozen features have lost the weak direction: κ is the same, but half of the target is
    lost."""
    latent, answers, target = task(300, 0.1)
    whole = condition_number(latent, answers, target, resamples=24)
    cut = condition_number(latent, answers, target, frozen=latent[:, :3], resamples=24)
    assert cut.kappa == whole.kappa
    assert cut.interval == whole.interval
    assert abs(cut.error.value - 0.5) < 0.15 < 0.15 + whole.error.value < 0.2
    assert cut.scores["LogME"].value < whole.scores["LogME"].value
    # If the features themselves have lost a direction, the explained share shows it, not κ.
    lost = condition_number(latent[:, :3], answers, target, resamples=24)
    assert abs(lost.explained - 0.5) < 0.15
    assert whole.explained > 0.95


def test_predicts_is_the_rank_correlation_of_scores_with_errors():
    """The features have less and less signal in the direction that the target needs: pretraining
    covers it less, and the error grows with κ."""
    transfers = []
    for weak in (1.0, 0.6, 0.4, 0.25):
        moment = np.diag([1.0, 1.0, 1.0, weak**2])
        latent, answers, target = task(300, 0.3, moment=moment)
        blur = np.random.default_rng(0).standard_normal(300) * 0.1 / weak
        features = latent + np.outer(blur, [0, 0, 0, 1.0])
        transfers.append(condition_number(features, answers, target, resamples=24))
    correlations = predicts(transfers)
    assert set(correlations) == {"condition number", "LogME"}
    assert correlations["condition number"] == pytest.approx(1)
    with pytest.raises(BadInput, match="at least three; got 2"):
        predicts(transfers[:2])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"features": np.ones(50)}, r"features must be finite numbers in 2 dimensions.*\(50,\)"),
        ({"features": np.full((50, 2), np.nan)}, "with NaN or infinity"),
        ({"features": RNG.standard_normal((10, 2))}, "a row for each of the 10 samples"),
        ({"pretraining": np.ones((49, 3))}, "pretraining must have a row for each of the 50"),
        ({"downstream": np.ones(50)}, "without variation"),
        (
            {"frozen": RNG.standard_normal((49, 2))},
            "frozen must have a row for each of the 50 samples",
        ),
        ({"resamples": 3}, "resamples must be a whole number of at least 24"),
        ({"features": RNG.standard_normal((50, 30))}, "at least 24 samples and three per feature"),
    ],
)
def test_bad_input_raises_one_sentence(changes: dict, message: str):
    settings = {
        "features": RNG.standard_normal((50, 2)),
        "pretraining": RNG.standard_normal((50, 3)),
        "downstream": RNG.standard_normal(50),
        **changes,
    }
    with pytest.raises(BadInput, match=message):
        condition_number(**settings)


@pytest.mark.parametrize(
    ("world", "message"),
    [
        ({"head": [1.0, 2.0], "mixing": np.eye(3)}, r"must be \(r, d\).*got \(3, 3\) and None"),
        ({"head": [1.0], "query_moment": [[-1.0]]}, "no negative eigenvalue"),
        ({"head": [math.nan]}, "head must be finite numbers in 1 dimension; "),
    ],
)
def test_impossible_worlds_raise_one_sentence(world: dict, message: str):
    with pytest.raises(BadInput, match=message):
        known_condition_number(**world)


@pytest.mark.slow
def test_the_exact_risks_of_the_claim_are_those_of_new_sequences():
    """The exact risk equals the held-out loss minus that of the best predictor, within 4.5 standard
    errors (false positives: 1 in 1.5e5)."""
    parameters = {**claim.LINEAR.settings, "kappa": 3.0}
    moment = condition_reads.query_moment(parameters)
    known = known_condition_number(target(parameters), query_moment=np.diag(moment))
    assert known == pytest.approx(3, rel=1e-12)
    dim = parameters["dim"]
    best = np.eye(dim) / condition_reads.read_energy(parameters)
    learned = condition_reads.learned_reads(parameters, (0,))[0]
    (pretraining,) = condition_reads.excesses(parameters, (learned - best)[None])["pretraining"]
    sizes = (parameters["sequences"], parameters["length"], dim)
    differences = []
    for fresh in episode_keys(range(1, 5), 1):
        drawn = pairs(fresh, np.sqrt(moment), parameters["noise_std"], sizes)
        tokens, query, value = (np.asarray(part, float) for part in drawn[:3])
        read = np.mean(tokens[..., :dim] * tokens[..., dim:], 1)
        loss = [(value - np.einsum("ni,ij,nj->n", query, w, read)) ** 2 for w in (learned, best)]
        differences.append(loss[0] - loss[1])
    drawn = np.concatenate(differences)
    assert abs(drawn.mean() - pretraining) < 4.5 * drawn.std() / math.sqrt(drawn.size)


@pytest.mark.parametrize("spread", [3, 9, 150, 300])
def test_units_of_features_do_not_matter(spread: int):
    """If a column is in seconds instead of years, κ, explained share, error and scores are the
    same."""
    random = np.random.default_rng(5)
    z = random.standard_normal((120, 4))
    pretraining_target, classes = z * [1.0, 1.0, 0.5, 0.2], (z[:, 3] > 0).astype(int)
    units = 10.0 ** np.array([-spread, 0.0, spread / 3, spread])
    for downstream in (z @ [0.0, 0.6, 0.0, 0.8], classes):
        ours = condition_number(z, pretraining_target, downstream, resamples=24)
        theirs = condition_number(z * units + units, pretraining_target, downstream, resamples=24)
        # The rounding of the shift by one unit, ε, is multiplied by the condition number of four
        # independent columns (below 2) and by some hundred additions.
        close = pytest.approx(ours.kappa.value, rel=1e-11)
        assert theirs.kappa.value == close
        assert theirs.interval == pytest.approx(ours.interval, rel=1e-11)
        assert theirs.explained == pytest.approx(ours.explained, abs=1e-11)
        # Cross-validated heads are found by iteration, which stops at a gradient of 1e-4.
        assert theirs.error.value == pytest.approx(ours.error.value, abs=1e-6)
        for name, score in ours.scores.items():
            assert theirs.scores[name].value == pytest.approx(score.value, rel=1e-6, nan_ok=True)


@pytest.mark.parametrize("unit", [1e-12, 1e-2, 1e2, 3e7, 1e12])
def test_the_unit_of_one_pretraining_target_does_not_hide_the_others(unit: float):
    """One pretraining target is in cents and others in millions, each with noise."""
    random = np.random.default_rng(0)
    features, heads = random.standard_normal((400, 4)), random.standard_normal((4, 3))
    targets = features @ heads + 0.3 * random.standard_normal((400, 3))
    downstream = features @ heads[:, :1] + 0.1 * random.standard_normal((400, 1))
    units = np.array([1.0, 1.0, unit])
    answer = known_condition_number(heads[:, 0], (heads * units).T / math.sqrt(3), tolerance=1e-15)
    # κ = √3, because the target is one of three questions. Slopes have errors of 0.3/√400, compared
    # with heads of size 1.
    assert answer == pytest.approx(math.sqrt(3), rel=1e-3)
    assert estimate(features, targets * units, downstream).kappa == pytest.approx(answer, rel=0.03)


def test_a_constant_column_and_a_repeated_one_change_nothing():
    latents, pretraining_target, target = task(200, 0.1)
    target = target[:, None]
    plain = estimate(latents, pretraining_target, target)
    constant = np.full((len(latents), 1), 0.1)  # its mean differs from 0.1 by rounding
    again = latents[:, :1].astype(np.float32)  # equal up to rounding, which is dropped
    wider = np.concatenate([1e9 * latents, constant, again], 1)
    assert estimate(wider, pretraining_target, target) == pytest.approx(plain, rel=1e-6)


@pytest.mark.parametrize("unit", [1e-200, 1e-320, 1e200])
def test_targets_whose_squares_leave_float64_raise(unit: float):
    latents, pretraining_target, target = task(60, 0.1)
    for pretraining, downstream in (
        (pretraining_target, unit * target),
        (unit * pretraining_target, target),
    ):
        with pytest.raises(BadInput):
            condition_number(latents, pretraining, downstream)
    with pytest.raises(BadInput, match="a column that varies"):
        condition_number(np.full_like(latents, 0.1), pretraining_target, target)


@pytest.mark.parametrize("role", ["pretraining", "downstream"])
def test_whole_numbers_of_many_values_are_no_classes(role: str):
    """With one column per class, 100,000 different amounts in cents would take 80 GB."""
    amounts = np.arange(100_000)
    features = amounts.astype(float)[:, None]
    numbers: dict[str, np.ndarray] = dict.fromkeys(("pretraining", "downstream"), features[:, 0])
    with pytest.raises(BadInput, match=f"{role} must hold at most 1,000 classes; got 100,000"):
        condition_number(features, **{**numbers, role: amounts})
