"""The figure that notebooks show; the one module here that imports matplotlib."""

from io import BytesIO

from matplotlib.figure import Figure as MatplotlibFigure


class Figure(MatplotlibFigure):
    """A figure without pyplot, which would open windows where a machine has some.

    A notebook shows it all the same, whatever its backend.
    """

    def _repr_png_(self) -> bytes:
        buffer = BytesIO()
        self.savefig(buffer, format="png", dpi=100)
        return buffer.getvalue()
