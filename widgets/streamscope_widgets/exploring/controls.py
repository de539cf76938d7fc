"""The explorer's controls: program, knobs, streams, dtype, engines, device."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import ipywidgets as w

from streamscope.device_entry import DEVICES
from streamscope.devices.link_model import LinkModel
from streamscope.devices.protocol import Device
from streamscope.engine_entry import ENGINES
from streamscope.kernels.library.libraries import has_driver
from streamscope.options import RECORDER
from streamscope_widgets.exploring.runs import Asked, Link, setting_words
from streamscope_widgets.exploring.subjects import FLOATS, SWITCHES, Knob, Subject

STREAMS = (1, 2, 3, 4, 6, 8, 12)
AS_WRITTEN, AUTO = "as written", "auto"
EVERYWHERE = ("auto", "simulated")
"""Those that every machine has."""
NO_GPU = "There is no NVIDIA driver here, so Run runs on the simulated device"
MEASURED_LINK, MEASURED_SPEED = "NVLink", 1.0
LINK_SPEEDS = (("¼ of NVLink", 0.25), ("½ of NVLink", 0.5), (MEASURED_LINK, MEASURED_SPEED), ("2 × NVLink", 2.0), ("4 × NVLink", 4.0))
OF_LINKS = "Links between the GPUs of the simulated host; a real one has its own"
SIZE = "size"
"""Below this setting stands how long a kernel runs."""


class Controls:
    """The controls and their values.

    ``offered``: subjects to explore; the first one is chosen.
    ``engines``: those that are chosen at first.
    ``streams``: chosen at first; None lets the engines choose.
    ``device``: chosen at first.
    ``recorder``: chosen at first.
    ``changed``: called when the forecast is to be made anew.
    """

    def __init__(
        self,
        offered: Sequence[Subject],
        *,
        engines: Sequence[str],
        streams: int | None,
        repeats: int,
        device: str | Device,
        recorder: str,
        changed: Callable[[], None],
    ) -> None:
        self._changed, self._repeats, self._quiet = changed, repeats, False
        self._subject = offered[0]
        self._knobs: dict[str, Any] = {}
        self.program = w.Dropdown(description="program", options=_named(offered), value=self._subject)
        self.streams = w.SelectionSlider(description="streams", options=_stream_options(streams), value=streams or 0)
        self.links = w.SelectionSlider(description="links", options=_link_options(), value=MEASURED_SPEED, tooltip=OF_LINKS)
        self.show_links(several=False)
        self.dtype = w.Dropdown(description="dtype", options=[AS_WRITTEN, *FLOATS], value=AS_WRITTEN)
        opened = [] if isinstance(device, str) else [(device.info.name, device)]
        gpu = has_driver()
        names = dict.fromkeys([*EVERYWHERE, *(name for name in DEVICES if name != "cuda" or gpu or device == "cuda")])
        self.device = w.Dropdown(
            description="run on", options=[*opened, *((name, name) for name in names)], value=device, tooltip="" if gpu else NO_GPU
        )
        self.recorder = w.Dropdown(description="recorded by", options=list(RECORDER.choices), value=recorder, tooltip=RECORDER.help)
        self.recorder.layout.display = None if gpu or opened else "none"  # A simulated device keeps a log of its own.
        self.engines = {
            name: w.ToggleButton(name in engines, description=name, tooltip=ENGINES[name].line) for name in ENGINES
        }  # None is read as "null"
        self.knobs = w.VBox().add_class("ss-x-knobs")
        self.kernel_length = w.Label().add_class("ss-x-told")
        chips = w.VBox([w.Label("engines"), w.Box(list(self.engines.values())).add_class("ss-x-chips")])
        pair = w.HBox([self.dtype, self.device]).add_class("ss-x-pair")
        self.box = w.VBox([self.program, self.knobs, self.links, self.streams, chips, pair, self.recorder])
        self.box.add_class("ss-x-controls")
        self._make_knobs()
        self.program.observe(self._program_changed, "value")
        for control in (self.links, self.streams, self.dtype, *self.engines.values()):
            control.observe(self._moved, "value")

    @property
    def asked(self) -> Asked:
        """Settings of a run, as the knobs stand."""
        dtype = None if self.dtype.value == AS_WRITTEN else self.dtype.value
        engines = tuple(name for name, chip in self.engines.items() if chip.value)
        values = {name: int(knob.value) for name, knob in self._knobs.items()}
        streams = self.streams.value or None
        link = Link(self.links.label, self.links.value)
        return Asked(self._subject, values, dtype, engines, streams, self._repeats, self.device.value, self.recorder.value, link)

    def offer(self, offered: Sequence[Subject]) -> None:
        """Offer other programs; the one that is chosen stays so, if it is still there."""
        options = _named(offered)
        if [name for name, _ in options] == [name for name, _ in self.program.options]:
            return
        same = (self._subject.name, self._subject.source)
        kept = next((subject for subject in offered if (subject.name, subject.source) == same), offered[0])
        self._quiet = True
        self.program.options = options
        self._quiet = False
        self.program.value = kept

    def tell_kernel_length(self, text: str) -> None:
        """Say below the knob of sizes how long a kernel of this size runs."""
        self.kernel_length.value = f"a kernel runs {text}" if text else ""

    def show_links(self, *, several: bool) -> None:
        """Offer other links, where a program has several GPUs."""
        self.links.layout.display = None if several else "none"

    def enable(self, *, enabled: bool) -> None:
        """Let the user move them, or not."""
        for control in (
            self.program,
            self.links,
            self.streams,
            self.dtype,
            self.device,
            self.recorder,
            *self.engines.values(),
            *self._knobs.values(),
        ):
            control.disabled = not enabled

    def _program_changed(self, change: Any) -> None:
        if not self._quiet and change["new"] is not None:
            self._subject = change["new"]
            self._make_knobs()
            self._changed()

    def _moved(self, change: Any) -> None:
        self._changed()

    def _make_knobs(self) -> None:
        self._knobs = {knob.name: _control(knob) for knob in self._subject.knobs}
        for knob in self._knobs.values():
            knob.observe(self._moved, "value")
        self.knobs.children = tuple(
            w.VBox([knob, self.kernel_length]).add_class("ss-x-with-told") if name == SIZE else knob for name, knob in self._knobs.items()
        )


def _stream_options(streams: int | None) -> list[tuple[str, int]]:
    """Return the values of the number of streams, with the slider's texts; 0 where the engines choose."""
    return [(AUTO, 0), *((str(count), count) for count in sorted({*STREAMS, *([streams] if streams else [])}))]


def _link_options() -> list[tuple[str, float]]:
    """Return the links between GPUs that can be simulated, the slowest first."""
    return [("PCIe", LinkModel.load().speed_of("pcie")), *LINK_SPEEDS]


def _named(offered: Sequence[Subject]) -> list[tuple[str, Subject]]:
    """Return subjects with their names in the list; of equal names, each says where it comes from."""
    count = Counter(subject.name for subject in offered)
    return [(f"{one.name} ({one.source})" if count[one.name] > 1 else one.name, one) for one in offered]


def _control(knob: Knob) -> Any:
    if knob.name in SWITCHES:
        return w.Checkbox(bool(knob.value), description=SWITCHES[knob.name], indent=False, tooltip=knob.meaning)
    unit = " elements" if knob.name == SIZE and knob.meaning.startswith("elements") else ""
    options = [(setting_words(knob.name, value) + unit, value) for value in knob.values]
    return w.SelectionSlider(description=knob.name, options=options, value=knob.value, tooltip=knob.meaning)
