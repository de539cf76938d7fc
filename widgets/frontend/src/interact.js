// Pointer, wheel and keys, turned into the timeline's own verbs.

const CLICK_SLACK = 4;
const LINE = 16;
const WHEEL_RATE = 0.0016;

/** Listen on the canvas. Returns a function that stops listening. */
export function attach(canvas, timeline) {
  const stop = new AbortController();
  const on = (type, handler, options = {}) => canvas.addEventListener(type, handler, { signal: stop.signal, ...options });
  let drag = null;

  const point = (event) => {
    const box = canvas.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top, clientX: event.clientX, clientY: event.clientY };
  };

  on("pointerdown", (event) => {
    if (event.button !== 0) return;
    canvas.focus({ preventScroll: true });
    canvas.setPointerCapture(event.pointerId);
    const at = point(event);
    drag = { start: at, last: at, moved: false, mode: timeline.dragMode(at, event.shiftKey) };
    if (drag.mode === "overview") timeline.centreOverview(at.x);
  });

  on("pointermove", (event) => {
    const at = point(event);
    if (!drag) return timeline.hover(at);
    if (!drag.moved && Math.hypot(at.x - drag.start.x, at.y - drag.start.y) < CLICK_SLACK) return undefined;
    drag.moved = true;
    canvas.classList.toggle("ss-grabbing", drag.mode === "pan");
    canvas.classList.toggle("ss-resizing", drag.mode === "measure");
    if (drag.mode === "pan") timeline.panPixels(drag.last.x - at.x);
    else if (drag.mode === "measure") timeline.measureBetween(drag.start, at);
    else timeline.centreOverview(at.x);
    drag.last = at;
    return undefined;
  });

  const release = (event) => {
    canvas.classList.remove("ss-grabbing", "ss-resizing");
    if (drag && !drag.moved && event.type === "pointerup" && drag.mode === "pan") timeline.click(point(event));
    drag = null;
  };
  on("pointerup", release);
  on("pointercancel", release);
  on("pointerleave", () => drag || timeline.leave());
  on("dblclick", () => timeline.reset());

  on("wheel", (event) => {
    const unit = event.deltaMode === 1 ? LINE : event.deltaMode === 2 ? 20 * LINE : 1;
    const sideways = event.shiftKey ? event.deltaX || event.deltaY : event.deltaX;
    if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      event.preventDefault();
      timeline.panPixels(sideways * unit);
    } else if (event.ctrlKey || event.metaKey || canvas === canvas.ownerDocument.activeElement) {
      event.preventDefault();
      timeline.zoomAt(point(event).x, Math.exp(event.deltaY * unit * WHEEL_RATE));
    } else {
      // The page scrolls, as it must when the pointer only passes over; say how to zoom instead.
      timeline.nudge();
    }
  }, { passive: false });

  on("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const action = KEYS[event.key.length === 1 ? event.key.toLowerCase() : event.key];
    if (!action) return;
    event.preventDefault();
    event.stopPropagation();
    action(timeline);
  });

  return () => stop.abort();
}

const zoomIn = (timeline) => timeline.zoomBy(1 / 1.5);
const zoomOut = (timeline) => timeline.zoomBy(1.5);
const left = (timeline) => timeline.panShare(-0.2);
const right = (timeline) => timeline.panShare(0.2);

const KEYS = {
  w: zoomIn, "+": zoomIn, "=": zoomIn, s: zoomOut, "-": zoomOut, a: left, ArrowLeft: left, d: right, ArrowRight: right,
  o: (timeline) => timeline.overlap.toggle("overlap"), c: (timeline) => timeline.overlap.toggle("path"),
  0: (timeline) => timeline.reset(),
  Home: (timeline) => timeline.reset(),
  f: (timeline) => timeline.fitSelection(),
  n: (timeline) => timeline.selectNeighbour(1),
  p: (timeline) => timeline.selectNeighbour(-1),
  Escape: (timeline) => timeline.clear(),
};
