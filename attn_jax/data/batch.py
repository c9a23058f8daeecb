"""The one form in which every data source hands out examples."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float32, Int32


class Batch(NamedTuple):
    """Examples of one step.

    tokens: what the model reads.
    targets: what it has to say at each position; for text this is `tokens` shifted
        left by one.
    weights: 1 where the target counts and 0 where it does not, so the loss is
        Σ weights · loss / Σ weights.
    """

    tokens: Int32[np.ndarray, "b t"]
    targets: Int32[np.ndarray, "b t"]
    weights: Float32[np.ndarray, "b t"]
