"""Eigen analysis of attention scores, and their reconstruction from a few.

Bhojanapalli et al. 2021, 2106.08823. Scores are those before the softmax. All sums are
in float64, in NumPy: what is analysed comes in pieces and fits no accelerator's types.

    statistics   `Covariance`, `Sketch`; `score_statistics` of a model's scores
    spectra      `spectrum`, `explained_variance`, `subspace_overlap`, `transfer`
    selection    `greedy_selection` and others, by row, by column, of whole matrices
    maps         `fit_reconstruction`, `fit_rows`, `error_curve`
"""

from attn_jax.analysis.eigen.covariance import Components, Covariance, Sketch
from attn_jax.analysis.eigen.reconstruction import (
    Point,
    Reconstruction,
    RowMaps,
    error_curve,
    fit_reconstruction,
    fit_rows,
    reconstruction_error,
    residual,
)
from attn_jax.analysis.eigen.scores import Batch, score_sketches, score_statistics
from attn_jax.analysis.eigen.selection import (
    SELECTIONS,
    column_selection,
    greedy_selection,
    matrix_selection,
    pivoted_cholesky_selection,
    random_selection,
    row_selection,
    strided_selection,
)
from attn_jax.analysis.eigen.spectra import (
    between,
    components,
    explained_variance,
    random_overlap,
    sample_components,
    spectrum,
    subspace_overlap,
    transfer,
)

__all__ = [
    "SELECTIONS",
    "Batch",
    "Components",
    "Covariance",
    "Point",
    "Reconstruction",
    "RowMaps",
    "Sketch",
    "between",
    "column_selection",
    "components",
    "error_curve",
    "explained_variance",
    "fit_reconstruction",
    "fit_rows",
    "greedy_selection",
    "matrix_selection",
    "pivoted_cholesky_selection",
    "random_overlap",
    "random_selection",
    "reconstruction_error",
    "residual",
    "row_selection",
    "sample_components",
    "score_sketches",
    "score_statistics",
    "spectrum",
    "strided_selection",
    "subspace_overlap",
    "transfer",
]
