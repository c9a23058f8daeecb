"""The page: everything in one file, which opens without a network."""

import base64
from collections.abc import Sequence
from pathlib import Path

import jinja2
import plotly.offline

import attn_jax
from experiments.report import charts, tables
from experiments.report.curves import Curve, curves_of, ends, measures, not_finite
from experiments.report.runs import Run, readable
from experiments.report.samples import samples_of

TEMPLATE = "page.html"


def page(runs: Sequence[Run]) -> str:
    """The runs as HTML.

    Raises:
      UserError: a run whose files hold something else than an experiment writes.
    """
    curves, warnings, overview, settings = [], [], [], []
    for run in runs:
        with readable(run.path):
            curves += curves_of(run)
            warnings += not_finite(run)
            overview.append(tables.overview(run))
            settings.append((run.name, tables.settings(run)))
    looks = charts.looks_of(curves)
    of_measure: dict[str, list[Curve]] = {}
    for curve in curves:
        of_measure.setdefault(curve.measure, []).append(curve)
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(TEMPLATE).render(
        title=" and ".join(run.name for run in runs) if len(runs) < 4 else "Runs",
        version=attn_jax.__version__,
        overview=tables.Table(tables.OVERVIEW, overview),
        warnings=warnings,
        stale=[run.name for run in runs if run.goes_on],
        unknown=tables.unknown(runs),
        differences=tables.differences(runs) if len(runs) > 1 else None,
        settings=settings,
        ends=tables.Table(*ends(curves)) if curves else None,
        tables=tables.joined(runs),
        notes=tables.notes(runs),
        charts=[
            (name, charts.as_html(charts.chart(of_measure[name], looks)))
            for name in measures(curves)
        ],
        samples=samples_of(runs),
        figures=[
            (run.name, file.stem, _png(file)) for run in runs for file in run.figures
        ],
        plotly=plotly.offline.get_plotlyjs(),
    )


def _png(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode("ascii")
