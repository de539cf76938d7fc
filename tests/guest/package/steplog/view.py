"""The slowest kernel of each engine, below a comparison."""

from html import escape

from streamscope.results.views import View


def slowest(runs):
    """Return a sentence for each engine."""
    for engine, run in runs.items():
        kernels = run.trace.to_pandas().query("kind == 'kernel'")
        longest = kernels.loc[(kernels["end_ns"] - kernels["start_ns"]).idxmax()]
        yield f"Slowest under {engine}: {longest['name']}, {(longest['end_ns'] - longest['start_ns']) / 1000:.1f} µs"


def html(runs):
    """Show it in a notebook and in the report. Names are somebody else's, so they are escaped."""
    return "".join(f"<p>{escape(sentence)}</p>" for sentence in slowest(runs))


def markdown(runs):
    """Show it in Markdown."""
    return "".join(f"- {sentence}\n" for sentence in slowest(runs))


def picture(runs):
    """Draw it: runs.picture("slowest.svg", of="slowest")."""
    lines = [f'<text x="10" y="{20 * number + 20}">{escape(text)}</text>' for number, text in enumerate(slowest(runs))]
    return f'<svg xmlns="http://www.w3.org/2000/svg" width="640" height="{20 * len(lines) + 20}">{"".join(lines)}</svg>'


VIEW = View(of="comparison", html=html, markdown=markdown, pictures={"slowest": picture})
