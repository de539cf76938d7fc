"""Compiling one by one and together as static HTML: the verdict, and both as a still picture on one time axis."""

from __future__ import annotations

from html import escape

from streamscope.compiling.compare_compilation import CompilationComparison
from streamscope.kernels.compile.compilation_log import CompilationLog
from streamscope_widgets.static_timeline import data_uri
from streamscope_widgets.summary import SANS
from streamscope_widgets.worker_picture import workers_svg


def compilation_comparison_html(comparison: CompilationComparison) -> str:
    """Return it as HTML that needs no script, style sheet or network.

    Parameters
    ----------
    comparison : CompilationComparison
    """
    logs = {"one by one": comparison.one_by_one, "together": comparison.together}
    axis_ns = max(log.wall_ns for log in logs.values())
    pictures = "".join(_picture(label, log, axis_ns) for label, log in logs.items())
    return (
        f'<div style="{SANS};font-size:13px;line-height:1.45;max-width:1000px">'
        f'<p style="margin:0 0 2px 0;color:#808080">{escape(comparison.together.trace().info.device.name)}</p>'
        f'<p style="margin:0 0 10px 0;font-size:15px">{escape(str(comparison))}</p>{pictures}</div>'
    )


def _picture(label: str, log: CompilationLog, axis_ns: int) -> str:
    picture = data_uri(workers_svg(list(log.stages), axis_ns))
    return (
        f'<p style="margin:6px 0 2px 0;font-weight:600">{escape(label)}, {log.wall_ns / 1e6:,.0f} ms</p>'
        f'<img style="max-width:100%;height:auto" alt="Which thread did what, and when: {escape(label)}." src="{picture}">'
    )
