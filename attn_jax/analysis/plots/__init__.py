"""What attention does and what training came to, as figures.

Arrays in, a matplotlib figure out: nothing is read, written or shown, and no window
opens. A notebook shows the figure that a cell ends with; `figure.savefig` writes it.

    plots.attention_map(softmax_attention_weights(q, k)[0, 0], queries=words)

`axes=` draws into axes of your own, of `panels` say, and leaves the legend to you:

    figure, (left, right) = plots.panels(1, 2)
    plots.attention_map(w[0], axes=left)
    plots.attention_map(w[1], axes=right)

Titles, labels and scales are changed as in any figure: `figure.axes[0].set(...)`.

Colours are Okabe and Ito's, which people with any colour vision tell apart, and a line
has a marker or a dash besides; shades run from light to dark. A figure is 800 pixels
wide where an inch has 100, the width of a README, and its letters are 11 pixels high or
more there.

Needs matplotlib: pip install 'attn_jax[plots]'.
"""

from attn_jax.analysis.plots.curves import (
    loss_curves,
    quality_and_speed,
    spectra,
    weight_distributions,
)
from attn_jax.analysis.plots.maps import attention_map, head_grid, overlap_matrix
from attn_jax.analysis.plots.style import (
    PALETTE,
    WIDTH,
    legend,
    line_styles,
    panels,
)

__all__ = [
    "PALETTE",
    "WIDTH",
    "attention_map",
    "head_grid",
    "legend",
    "line_styles",
    "loss_curves",
    "overlap_matrix",
    "panels",
    "quality_and_speed",
    "spectra",
    "weight_distributions",
]
