"""Step logs: a line of text for each kernel, as our accelerator's driver writes them."""

import io

from streamscope.errors import OutputError
from streamscope.trace import Format, Trace


def read(file, options):
    """Read ``name,lane,start_us,duration_us`` from each line. A name may have commas."""
    lines = list(io.TextIOWrapper(file, "utf-8"))[1:]
    name, lane, start_us, duration_us = zip(*(line.rsplit(",", 3) for line in lines), strict=True)
    times = {"start_us": list(map(float, start_us)), "duration_us": list(map(float, duration_us))}
    return Trace.from_spans({"name": name, "lane": lane, **times}, program=options.program, device="our accelerator")


def write(trace, path):
    """Write the kernels of a measured trace: a log has no place for the word "simulated"."""
    if trace.info.device.simulated:
        raise OutputError(f"cannot write {path.name}: step logs hold measured times, and these are simulated", hint="use .parquet")
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
