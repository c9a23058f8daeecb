"""Covariances, spectra, selections and maps: against NumPy and brute force."""

import itertools

import numpy as np
import pytest

from attn_jax.analysis import eigen

N, COUNT, K = 9, 60, 4


def samples(count=COUNT, n=N, seed=0, rank=None, decay=0.7):
    """Correlated samples about a mean that is not 0."""
    rng = np.random.default_rng(seed)
    mixing = rng.normal(size=(rank or n, n)) * decay ** np.arange(rank or n)[:, None]
    return rng.normal(size=(count, rank or n)) @ mixing + rng.normal(size=n)


def matrix(seed=0, n=N):
    return np.cov(samples(seed=seed, n=n).T, bias=True)


def projector(vectors):
    return vectors @ vectors.T


# -------------------------------------------------------------------------- statistics


@pytest.mark.parametrize("cuts", [[], [1], [7, 7, 30], range(1, COUNT)], ids=len)
@pytest.mark.parametrize("shift", [0.0, 1e6])
def test_pieces_give_the_covariance_of_the_whole(cuts, shift):
    x = samples() + shift
    found = eigen.Covariance()
    for piece in np.split(x, list(cuts)):
        found = found.update(piece)
    assert found.count == COUNT
    np.testing.assert_allclose(found.mean, x.mean(axis=0), rtol=1e-14)
    want = np.cov(samples().T, bias=True)
    np.testing.assert_allclose(found.matrix, want, atol=1e-15 + 1e-15 * shift)


def test_statistics_are_values():
    """`update` and `merge` leave what they are given as it was."""
    x = samples()
    first = eigen.Covariance().update(x[:20])
    before = first.matrix.copy()
    whole = first.merge(eigen.Covariance().update(x[20:]))
    np.testing.assert_array_equal(first.matrix, before)
    np.testing.assert_allclose(whole.matrix, np.cov(x.T, bias=True), atol=1e-14)
    assert eigen.Covariance().merge(first) is first.merge(eigen.Covariance()) is first


def missing(seed=1):
    there = np.random.default_rng(seed).random((COUNT, N)) > 0.3
    there[:, 5] = False
    there[3] = False
    return there


def pairs_one_by_one(x, there):
    """Mean and covariance of what is there, by the definition."""
    mean = [x[there[:, i], i].mean() if there[:, i].any() else 0.0 for i in range(N)]
    total = np.zeros((N, N))
    for row, known in zip(x, there, strict=True):
        for i, j in itertools.product(np.flatnonzero(known), repeat=2):
            total[i, j] += (row[i] - mean[i]) * (row[j] - mean[j])
    return mean, total / len(x)


@pytest.mark.parametrize("cuts", [[], [4, 5, 40]], ids=len)
def test_entries_that_are_missing_never_enter(cuts):
    x, there = samples() + 50, missing()
    mean, want = pairs_one_by_one(x, there)
    found = eigen.Covariance()
    hidden = np.where(there, x, np.nan)
    pieces = zip(np.split(hidden, cuts), np.split(there, cuts), strict=True)
    for piece, valid in pieces:
        found = found.update(piece, valid=valid)
    np.testing.assert_allclose(found.mean, mean, rtol=1e-13)
    np.testing.assert_allclose(found.matrix, want, atol=1e-12)
    assert not found.matrix[5].any()


def test_pieces_with_and_without_missing_entries_join():
    x, there = samples(), missing()
    there[30:] = True
    _, want = pairs_one_by_one(x, there)
    for first, last in ((slice(0, 30), slice(30, None)), (slice(30, None), slice(30))):
        found = eigen.Covariance().update(x[first], valid=there[first])
        found = found.update(x[last], valid=there[last])
        np.testing.assert_allclose(found.matrix, want, atol=1e-12)


def test_axes_in_front_are_covariances_of_their_own():
    x = np.stack([samples(seed=s) for s in range(3)])
    found = eigen.Covariance().update(x[:, :7]).update(x[:, 7:])
    assert found.count == COUNT
    for mine, mean, each in zip(found.matrix, found.mean, x, strict=True):
        np.testing.assert_allclose(mine, np.cov(each.T, bias=True), atol=1e-14)
        np.testing.assert_allclose(mean, each.mean(axis=0), atol=1e-14)


# ----------------------------------------------------------------------------- spectra


def test_spectra_are_those_of_numpy():
    """Of whole score matrices too: 6 by 6 scores are samples of 36 numbers."""
    for n in (N, 36):
        values = np.linalg.eigvalsh(matrix(n=n))[::-1]
        np.testing.assert_allclose(eigen.spectrum(matrix(n=n)), values, atol=1e-13)
        found = eigen.components(matrix(n=n))
        np.testing.assert_allclose(found.values, values, atol=1e-13)
        rebuilt = found.vectors * found.values @ found.vectors.T
        np.testing.assert_allclose(rebuilt, matrix(n=n), atol=1e-13)


def test_explained_variance_is_the_share_of_the_leading_values():
    values = np.sort(np.linalg.eigvalsh(matrix()))[::-1]
    for r in range(1, N + 1):
        want = values[:r].sum() / values.sum()
        assert eigen.explained_variance(matrix(), r) == pytest.approx(want, abs=1e-12)
    assert eigen.explained_variance(matrix(), N) == pytest.approx(1.0)


def spanned(*columns, n=N):
    """A covariance whose leading components are these axes."""
    found = 0.01 * np.eye(n)
    for size, column in enumerate(columns):
        found[column, column] = 2.0 + size
    return found


def test_overlap_of_equal_orthogonal_and_half_equal_spaces():
    assert eigen.subspace_overlap(matrix(), matrix(), 3) == pytest.approx(1.0)
    apart = spanned(0, 1), spanned(4, 7)
    assert eigen.subspace_overlap(*apart, 2) == pytest.approx(0.0)
    assert eigen.subspace_overlap(spanned(0, 1), spanned(1, 5), 2) == pytest.approx(0.5)


def test_overlap_is_one_of_spaces_not_of_vectors():
    """Directions may turn within the space, and change their signs."""
    turn = np.linalg.qr(np.random.default_rng(0).normal(size=(3, 3)))[0]
    axes = np.eye(N)[:, :3]
    one = axes * [3.0, 2.5, 2.0] @ axes.T + 0.1 * np.eye(N)
    other = (axes @ turn) * [9.0, 5.0, 4.0] @ (axes @ turn).T + 0.2 * np.eye(N)
    assert eigen.subspace_overlap(one, other, 3) == pytest.approx(1.0)
    projected = [projector(eigen.components(x, 3).vectors) for x in (one, other)]
    np.testing.assert_allclose(*projected, atol=1e-12)


def test_random_spaces_overlap_by_their_share_of_the_dimensions():
    found = [
        eigen.subspace_overlap(matrix(seed=2 * s), matrix(seed=2 * s + 1), 3)
        for s in range(200)
    ]
    assert np.mean(found) == pytest.approx(eigen.random_overlap(3, N), abs=0.04)
    assert eigen.random_overlap(3, N) == 3 / N


def test_transfer_is_what_another_space_explains():
    one, other = matrix(seed=0), matrix(seed=1)
    for r in (1, 3, N):
        best = eigen.explained_variance(other, r)
        assert eigen.transfer(other, other, r) == pytest.approx(best)
        _, vectors = np.linalg.eigh(one)
        top = vectors[:, ::-1][:, :r]
        want = np.trace(top.T @ other @ top) / np.trace(other)
        got = eigen.transfer(one, other, r)
        assert got == pytest.approx(want)
        assert got <= best + 1e-12
    assert eigen.transfer(one, other, 2) != pytest.approx(
        eigen.transfer(other, one, 2), abs=1e-3
    )


@pytest.mark.parametrize("measure", [eigen.subspace_overlap, eigen.transfer])
def test_pairs_are_measured_one_by_one(measure):
    sources = [matrix(seed=s) for s in range(3)]
    found = eigen.between(measure, sources, 2)
    for i, j in np.ndindex(3, 3):
        assert found[i, j] == pytest.approx(measure(sources[i], sources[j], 2))


@pytest.mark.parametrize("count", [6, 25])
def test_components_of_samples_come_from_the_smaller_matrix(count):
    x = samples(count=count, n=15)
    found = eigen.sample_components(x, 4)
    want = eigen.components(np.cov(x.T, bias=True), 4)
    np.testing.assert_allclose(found.values, want.values, rtol=1e-10)
    np.testing.assert_allclose(
        projector(found.vectors), projector(want.vectors), atol=1e-8
    )
    assert found.total == pytest.approx(want.total)


def test_a_sketch_is_exact_where_its_columns_suffice():
    """Whole matrices of 128 by 128 scores, of which a covariance would take 2 GB."""
    x = samples(count=30, n=128 * 128, rank=12)
    sketch = eigen.Sketch(size=128 * 128, rank=5)
    for piece in np.split(x, [7, 8]):
        sketch = sketch.update(piece)
    found, want = sketch.components(), eigen.sample_components(x, 5)
    assert sketch.count == 30
    np.testing.assert_allclose(sketch.mean, x.mean(axis=0), atol=1e-13)
    np.testing.assert_allclose(found.values, want.values, rtol=1e-8)
    assert found.total == pytest.approx(want.total)
    assert eigen.subspace_overlap(found, want, 5) == pytest.approx(1.0, abs=1e-10)
    for r in (1, 5):
        got = eigen.explained_variance(found, r)
        assert got == pytest.approx(eigen.explained_variance(want, r))
        assert eigen.transfer(found, want, r) == pytest.approx(got)


def test_a_sketch_of_many_directions_is_a_little_low():
    x = samples(count=400, n=100, decay=0.9)
    sketch = eigen.Sketch(size=100, rank=6).update(x[:150]).update(x[150:])
    found, want = sketch.components(), eigen.sample_components(x, 6)
    assert (found.values <= want.values * (1 + 1e-12)).all()
    np.testing.assert_allclose(found.values, want.values, rtol=0.03)
    assert eigen.transfer(found, np.cov(x.T, bias=True), 6) > 0.99 * (
        eigen.explained_variance(want, 6)
    )


# --------------------------------------------------------------------------- selection


def unexplained(c, chosen):
    """tr C less what least squares explains, solved anew."""
    known = c[np.ix_(chosen, chosen)]
    return np.trace(c) - np.trace(c[:, chosen] @ np.linalg.solve(known, c[chosen]))


def brute_force(c, k, score=unexplained):
    chosen = []
    for _ in range(k):
        rest = [j for j in range(len(c)) if j not in chosen]
        chosen.append(min(rest, key=lambda j: score(c, [*chosen, j])))
    return chosen


@pytest.mark.parametrize("seed", range(5))
def test_greedy_equals_brute_force(seed):
    """The same entries, in the same order, and the same error."""
    c = matrix(seed=seed, n=12)
    for k in (1, 3, 7):
        found = eigen.greedy_selection(c, k)
        assert found.tolist() == brute_force(c, k)
        error = eigen.residual(c, found)
        assert error == pytest.approx(unexplained(c, found.tolist()))


@pytest.mark.parametrize("seed", range(5))
def test_error_lies_between_the_components_tail_and_random_selection(seed):
    c = matrix(seed=seed, n=16)
    for k in (2, 5, 9):
        tail = eigen.spectrum(c)[k:].sum()
        error = eigen.residual(c, eigen.greedy_selection(c, k))
        others = [
            eigen.residual(c, eigen.random_selection(c, k, seed=s)) for s in range(50)
        ]
        assert tail <= error < np.mean(others)


def test_pivoted_cholesky_takes_the_greatest_variance_that_is_left():
    c = matrix(seed=1)
    chosen = []
    for _ in range(K):
        left = c
        if chosen:
            known = np.linalg.solve(c[np.ix_(chosen, chosen)], c[chosen])
            left = c - c[:, chosen] @ known
        chosen.append(int(np.argmax(np.diag(left))))
    assert eigen.pivoted_cholesky_selection(c, K).tolist() == chosen


@pytest.mark.parametrize("name", eigen.SELECTIONS)
def test_selections_are_deterministic_distinct_and_among_the_candidates(name):
    select, c = eigen.SELECTIONS[name], matrix()
    candidates = np.arange(N) % 2 == 0
    for k in (1, 3, 5):
        found = select(c, k, candidates=candidates)
        assert found.shape == (k,)
        assert len(set(found.tolist())) == k
        assert candidates[found].all()
        np.testing.assert_array_equal(select(c, k, candidates=candidates), found)
    assert sorted(select(c, N).tolist()) == list(range(N))


def test_strides_reach_from_the_first_to_the_last():
    assert eigen.strided_selection(matrix(), 3).tolist() == [0, 4, 8]
    assert eigen.strided_selection(matrix(), 1).tolist() == [0]


def test_random_selections_differ_by_seed():
    found = {tuple(eigen.random_selection(matrix(), 3, seed=s)) for s in range(10)}
    assert len(found) > 5


def test_of_equally_good_entries_the_first_is_selected():
    assert eigen.greedy_selection(np.eye(N), 3).tolist() == [0, 1, 2]
    one = np.ones((N, N))
    assert eigen.greedy_selection(one, 2).tolist() == [0, 1]
    assert eigen.residual(one, np.array([0])) == pytest.approx(0.0, abs=1e-12)


def rows(t=N, n=N):
    return np.stack([matrix(seed=s, n=n) for s in range(t)])


def test_rows_select_keys_of_their_own():
    found = eigen.row_selection(rows(), 3)
    for chosen, c in zip(found, rows(), strict=True):
        assert chosen.tolist() == brute_force(c, 3)


@pytest.mark.parametrize("name", eigen.SELECTIONS)
def test_causal_rows_select_no_later_key(name):
    found = eigen.row_selection(rows(), K, select=eigen.SELECTIONS[name], causal=True)
    for i, chosen in enumerate(found):
        assert chosen.max() <= i
        assert len(set(chosen.tolist())) == min(K, i + 1)


def test_columns_minimise_the_error_of_all_rows():
    matrices = rows(t=4)
    chosen = []
    for _ in range(3):
        rest = [j for j in range(N) if j not in chosen]
        errors = [sum(unexplained(c, [*chosen, j]) for c in matrices) for j in rest]
        chosen.append(rest[int(np.argmin(errors))])
    assert eigen.column_selection(matrices, 3).tolist() == chosen


def test_whole_matrices_fill_a_quota_for_each_row():
    """Greedy over all entries, of which a full row is closed."""
    t, n, k = 4, 3, 2
    c = matrix(seed=5, n=t * n)
    chosen = []
    for _ in range(t * k):
        rest = [
            j
            for j in range(t * n)
            if j not in chosen and sum(i // n == j // n for i in chosen) < k
        ]
        chosen.append(min(rest, key=lambda j: unexplained(c, [*chosen, j])))
    found = eigen.matrix_selection(c, n, k)
    assert found.shape == (t, k)
    want = [[j % n for j in chosen if j // n == row] for row in range(t)]
    assert found.tolist() == want


# -------------------------------------------------------------------------------- maps


def test_the_map_is_that_of_least_squares():
    x, chosen = samples(), np.array([6, 1, 4])
    statistics = eigen.Covariance().update(x)
    found, offset = eigen.fit_reconstruction(statistics.matrix, statistics.mean, chosen)
    known = np.column_stack([x[:, chosen], np.ones(COUNT)])
    want = np.linalg.lstsq(known, x, rcond=None)[0]
    np.testing.assert_allclose(found, want[:-1].T, atol=1e-10)
    np.testing.assert_allclose(offset, want[-1], atol=1e-10)
    np.testing.assert_array_equal(found[chosen], np.eye(3))
    assert not offset[chosen].any()


def test_all_entries_reproduce_the_samples():
    x = samples()
    statistics = eigen.Covariance().update(x)
    order = np.random.default_rng(0).permutation(N)
    found, offset = eigen.fit_reconstruction(statistics.matrix, statistics.mean, order)
    np.testing.assert_allclose(x[:, order] @ found.T + offset, x, atol=1e-5)
    assert eigen.residual(statistics, order) == pytest.approx(0.0, abs=1e-9)


def test_a_ridge_shrinks_the_map_but_not_the_selected_entries():
    statistics, chosen = eigen.Covariance().update(samples()), np.array([2, 7])
    c, mean = statistics.matrix, statistics.mean
    found = eigen.fit_reconstruction(c, mean, chosen, ridge=0.5)
    known = np.linalg.inv(c[np.ix_(chosen, chosen)] + 0.5 * np.eye(2))
    rest = np.setdiff1d(np.arange(N), chosen)
    np.testing.assert_allclose(found.reconstruction[rest], (c[:, chosen] @ known)[rest])
    np.testing.assert_array_equal(found.reconstruction[chosen], np.eye(2))
    np.testing.assert_allclose(found.offset, mean - found.reconstruction @ mean[chosen])
    assert (found.ridge, found.rank) == (0.5, 2)


SINGULAR = {
    "too few samples": (samples(count=3), [0, 4, 7, 2], 2),
    "the same entry twice": (samples(), [3, 3, 5], 2),
    "an entry that never varies": (samples() * (np.arange(N) != 6), [6, 0], 1),
    "nothing that varies": (np.ones((5, N)), [1, 2], 0),
}


@pytest.mark.parametrize("case", SINGULAR)
def test_a_singular_covariance_gets_a_ridge_and_the_result_says_so(case):
    x, chosen, rank = SINGULAR[case]
    statistics, chosen = eigen.Covariance().update(x), np.array(chosen)
    found = eigen.fit_reconstruction(statistics.matrix, statistics.mean, chosen)
    assert found.rank == rank
    assert found.ridge > 0
    got = x[:, chosen] @ found.reconstruction.T + found.offset
    np.testing.assert_allclose(got[:, chosen], x[:, chosen], atol=1e-12)
    error = np.sum((got - x) ** 2) / len(x)
    least = eigen.residual(statistics, chosen)
    assert error <= least + 1e-6 * np.trace(statistics.matrix)


def test_errors_are_those_of_the_samples():
    """Of those that the map is from, and of others with another mean."""
    mine = eigen.Covariance().update(samples())
    other = samples(seed=0, count=35) + 0.3
    theirs, chosen = eigen.Covariance().update(other), np.array([1, 5, 2])
    fitted = eigen.fit_reconstruction(mine.matrix, mine.mean, chosen, ridge=0.01)
    for statistics, x in ((mine, samples()), (theirs, other)):
        got = eigen.reconstruction_error(
            statistics.matrix, statistics.mean, chosen, fitted
        )
        rebuilt = x[:, chosen] @ fitted.reconstruction.T + fitted.offset
        assert got == pytest.approx(np.mean(np.sum((rebuilt - x) ** 2, axis=1)))


def test_the_error_falls_with_the_number_of_known_entries():
    x = samples(count=600, n=12)
    mine, theirs = (eigen.Covariance().update(part) for part in np.split(x, [30]))
    curve = eigen.error_curve(mine, theirs, range(1, 13))
    fitted, held_out, bound = (
        np.array([getattr(point, name) for point in curve])
        for name in ("fitted", "held_out", "bound")
    )
    assert (np.diff(fitted) <= 1e-12).all()
    assert (bound <= held_out + 1e-12).all()
    assert (held_out[:8] > fitted[:8]).all()
    want = [1 - eigen.explained_variance(theirs, k) for k in range(1, 13)]
    np.testing.assert_allclose(bound, want, atol=1e-12)
    np.testing.assert_allclose([fitted[-1], held_out[-1]], 0.0, atol=1e-12)


def test_positions_have_curves_of_their_own_that_are_added():
    x = np.stack([samples(seed=s, count=100) for s in range(3)])
    parts = x[:, :50], x[:, 50:]
    mine, theirs = (eigen.Covariance().update(part) for part in parts)
    (point,) = eigen.error_curve(mine, theirs, [K])
    errors, whole = 0.0, 0.0
    for one, other in zip(*parts, strict=True):
        a, b = eigen.Covariance().update(one), eigen.Covariance().update(other)
        (each,) = eigen.error_curve(a, b, [K])
        errors += each.held_out * np.trace(b.matrix)
        whole += np.trace(b.matrix)
    assert point.held_out == pytest.approx(errors / whole)


# ------------------------------------------------------------------------------ errors

FEW, WHOLE = (eigen.Covariance().update(samples(count=n)) for n in (4, 60))
ERRORS = {
    "more keys than entries": (
        lambda: eigen.greedy_selection(matrix(), N + 1),
        r"k: got 10; expected at most 9, the number of entries",
    ),
    "more keys than candidates": (
        lambda: eigen.random_selection(matrix(), 3, candidates=np.arange(N) < 2),
        r"k: got 3; expected at most 2, the number of candidates",
    ),
    "rows with more keys than entries": (
        lambda: eigen.row_selection(rows(), N + 1, causal=True),
        r"k: got 10; expected at most 9",
    ),
    "columns with more keys than entries": (
        lambda: eigen.column_selection(rows(), N + 1),
        r"k: got 10; expected at most 9",
    ),
    "a quota above the row": (
        lambda: eigen.matrix_selection(matrix(), 3, 4),
        r"k: got 4; expected at most 3",
    ),
    "no whole rows": (
        lambda: eigen.matrix_selection(matrix(), 4, 1),
        r"n: got 4 for 9 entries; expected a divisor",
    ),
    "a rank above the entries": (
        lambda: eigen.explained_variance(matrix(), N + 1),
        r"r: got 10; expected at most 9",
    ),
    "fewer samples than a rank needs": (
        lambda: eigen.explained_variance(FEW, 4),
        r"samples: got 4 for rank 4; expected at least 5, .*take 1 more",
    ),
    "fewer samples than a selection needs": (
        lambda: eigen.greedy_selection(FEW, 6),
        r"samples: got 4 for rank 6; expected at least 7, .*take 3 more",
    ),
    "fewer samples than a sketch needs": (
        lambda: eigen.Sketch(size=N, rank=4).update(samples(count=4)).components(),
        r"samples: got 4 for rank 4; expected at least 5",
    ),
    "fewer samples than a curve needs": (
        lambda: eigen.error_curve(FEW, FEW, [2, 5]),
        r"samples: got 4 for rank 5; expected at least 6",
    ),
    "a curve of samples that don't vary": (
        lambda: eigen.error_curve(WHOLE, eigen.Covariance().update(samples()[:1]), [2]),
        r"held_out: got a variance of 0 in all",
    ),
    "a curve of other samples": (
        lambda: eigen.error_curve(WHOLE, eigen.Covariance().update(samples(n=8)), [2]),
        r"held_out: got matrices of shape \(8, 8\) for statistics of shape \(9, 9\)",
    ),
    "a curve without points": (
        lambda: eigen.error_curve(WHOLE, WHOLE, []),
        r"ks: got none",
    ),
    "rows with a negative ridge": (
        lambda: eigen.fit_rows(WHOLE, np.array([1]), ridge=-0.1),
        r"ridge: got -0.1; expected a number >= 0",
    ),
    "no samples": (
        lambda: eigen.Covariance().matrix,
        r"samples: got none; .*update\(samples\)",
    ),
    "samples of another length": (
        lambda: FEW.update(samples(n=8)),
        r"samples: got 8 entries each .* after some of 9",
    ),
    "a sample that is not finite": (
        lambda: FEW.update(np.where(np.arange(N) == 3, np.inf, samples())),
        r"samples: got inf at \(0, 3\); expected finite",
    ),
    "one sample": (
        lambda: FEW.update(samples()[0]),
        r"samples: got shape \(9,\); expected \(N, n\).*samples\[None\]",
    ),
    "a matrix that is not square": (
        lambda: eigen.spectrum(samples()),
        r"matrix: got shape \(60, 9\); expected \(n, n\)",
    ),
    "matrices of two sizes": (
        lambda: eigen.subspace_overlap(matrix(), matrix(n=8), 2),
        r"b: got 8 entries a sample for a's 9",
    ),
    "scores that never vary": (
        lambda: eigen.explained_variance(np.zeros((N, N)), 2),
        r"matrix: got a variance of 0",
    ),
    "a map from entries that are not there": (
        lambda: eigen.fit_reconstruction(matrix(), np.zeros(N), np.array([1, 9])),
        r"selected: got numbers from 1 to 9; expected 0 to 8",
    ),
    "a map from more entries than there are": (
        lambda: eigen.fit_reconstruction(matrix(), np.zeros(N), np.arange(10) % N),
        r"selected: got k = 10 entries of n = 9",
    ),
    "a mean of other samples": (
        lambda: eigen.fit_reconstruction(matrix(), np.zeros(8), np.array([1])),
        r"mean: got shape \(8,\) for a matrix of shape \(9, 9\)",
    ),
    "a negative ridge": (
        lambda: eigen.fit_reconstruction(matrix(), np.zeros(N), np.array([1]), -0.1),
        r"ridge: got -0.1; expected a number >= 0",
    ),
    "an unknown selection": (
        lambda: eigen.SELECTIONS["gredy"],
        r"selection: got 'gredy'; did you mean 'greedy'",
    ),
}


@pytest.mark.parametrize("case", ERRORS)
def test_what_does_not_fit_raises_with_numbers(case, plain_errors):
    call, message = ERRORS[case]
    with pytest.raises(ValueError, match=message):
        call()
