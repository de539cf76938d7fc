"""Step logs: a line of text for each kernel, as our accelerator's driver writes them."""

import io

from streamscope.trace import Format, Trace


def read(file, options):
    """Read ``name,stream,start_us,duration_us`` from each line."""
    lines = list(io.TextIOWrapper(file, "utf-8"))[1:]
    name, stream, start_us, duration_us = zip(*(line.split(",") for line in lines), strict=True)
    times = {"start_us": list(map(float, start_us)), "duration_us": list(map(float, duration_us))}
    return Trace.from_spans({"name": name, "stream": stream, **times}, program=options.program, device="our accelerator")


def write(trace, path):
    """Write the work of a trace."""
    with path.open("w", encoding="utf-8") as file:
        file.write("# steplog\n")
        for span in trace.to_pandas().query("kind == 'kernel'").itertuples():
            file.write(f"{span.name},{span.lane},{span.start_ns / 1000},{(span.end_ns - span.start_ns) / 1000}\n")
    return path


FORMAT = Format(
    name="steplog",
    label="step log (.steplog)",
    suffixes=(".steplog",),
    sniff=lambda start, path: start.startswith(b"# steplog"),
    read=read,
    write=write,
    recorder="steplog",
    stretches=True,
)
