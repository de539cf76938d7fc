"""``streamscope workloads``: the ready workloads and their settings."""

from __future__ import annotations

from streamscope.cli.terminal import output


def workloads() -> None:
    """List the workloads with their settings."""
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    from streamscope.workloads import WORKLOADS

    console = output()
    for workload in WORKLOADS.values():
        console.print(Text(workload.name, style="bold"))
        console.print(Padding(workload.description, (0, 2)))
        table = Table(box=None, show_header=False, padding=(0, 1, 0, 4))
        table.add_column(style="cyan", no_wrap=True)
        table.add_column()
        table.add_column(style="dim", no_wrap=True)
        for name, setting in workload.settings.items():
            table.add_row(f"{name}={setting.default}", setting.meaning, f"{setting.least:,} to {setting.most:,}")
        console.print(table)
        console.print()
    console.print("For example: streamscope compare elementwise-chain --set length=50", soft_wrap=True)
