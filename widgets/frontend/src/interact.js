// Pointer and wheel, turned into the timeline's own verbs.

import { isCombined, KEYS } from "./keys.js";

/**
 * @import { KeyTarget } from "./keys.js"
 * @import { Layout } from "./layout.js"
 * @import { Dragging, Pointer, Pointing } from "./pointing.js"
 * @import { Stage } from "./stage.js"
 * @import { Viewer } from "./viewing.js"
 */

/**
 * The timeline as pointer and wheel know it.
 *
 * @typedef {KeyTarget & { layout: Pick<Layout, "axis">, stage: Pick<Stage, "axisTop" | "nudge">, pointing: Pointing, viewer: Viewer }} Owner
 */

/** @typedef {"overview" | "reorder" | Dragging} DragMode */

/** @typedef {{ start: Pointer, last: Pointer, moved: boolean, mode: DragMode, engine: number | null }} Drag */

const CLICK_SLACK = 4;
const LINE = 16;
const WHEEL_RATE = 0.0016;
/** @type {Partial<Record<DragMode, string>>} */
const CURSORS = { pan: "ss-grabbing", reorder: "ss-grabbing", measure: "ss-resizing", area: "ss-resizing", zoom: "ss-resizing" };

/**
 * Listen on the canvas. Returns a function that stops listening.
 *
 * @param {HTMLCanvasElement} canvas
 * @param {Owner} timeline
 */
export function attach(canvas, timeline) {
  const stop = new AbortController();
  /**
   * @template {keyof HTMLElementEventMap} T
   * @param {T} type
   * @param {(event: HTMLElementEventMap[T]) => void} handler
   * @param {AddEventListenerOptions} [options]
   */
  const on = (type, handler, options = {}) => canvas.addEventListener(type, handler, { signal: stop.signal, ...options });
  /** @type {Map<number, Pointer>} */
  const fingers = new Map();
  /** @type {Drag | null} */
  let drag = null;

  /**
   * @param {MouseEvent} event
   * @returns {Pointer}
   */
  const point = (event) => {
    const { left, top } = canvas.getBoundingClientRect();
    const { clientX, clientY } = event;
    // Where the axis stays in sight, it lies over what scrolls away.
    const axis = timeline.stage.axisTop();
    const onAxis = clientY >= axis && clientY < axis + timeline.layout.axis;
    return { x: clientX - left, y: clientY - (onAxis ? axis : top), clientX, clientY };
  };

  on("pointerdown", (event) => {
    if (event.button !== 0) return;
    canvas.focus({ preventScroll: true });
    canvas.setPointerCapture(event.pointerId);
    const at = point(event);
    fingers.set(event.pointerId, at);
    if (fingers.size > 1) {
      drag = null;
      return;
    }
    const held = { shift: event.shiftKey, control: event.ctrlKey || event.metaKey, alt: event.altKey };
    const { pointing, viewer } = timeline;
    drag = { start: at, last: at, moved: false, mode: pointing.dragMode(at, held), engine: pointing.engineAt(at) };
    if (drag.mode === "overview") viewer.centreOverview(at.x);
  });

  on("pointermove", (event) => {
    const at = point(event);
    if (fingers.size > 1) pinch(timeline, fingers, event.pointerId, at);
    else if (!drag) timeline.pointing.hover(at);
    else if (drag.moved || Math.hypot(at.x - drag.start.x, at.y - drag.start.y) >= CLICK_SLACK) {
      if (!drag.moved) timeline.pointing.leave();
      drag.moved = true;
      const cursor = CURSORS[drag.mode];
      if (cursor) canvas.classList.add(cursor);
      DRAGS[drag.mode](timeline, drag, at);
      drag.last = at;
    }
  });

  /** @param {PointerEvent} event */
  const release = (event) => {
    canvas.classList.remove("ss-grabbing", "ss-resizing");
    fingers.delete(event.pointerId);
    if (drag && event.type === "pointerup") {
      if (!drag.moved && drag.mode !== "overview") timeline.pointing.click(point(event));
      else if (drag.moved && drag.mode === "zoom") timeline.viewer.zoomToRubber();
    }
    drag = null;
  };
  on("pointerup", release);
  on("pointercancel", release);
  on("pointerleave", () => drag || timeline.pointing.leave());
  on("dblclick", () => timeline.reset());

  on("wheel", (event) => {
    const unit = event.deltaMode === 1 ? LINE : event.deltaMode === 2 ? 20 * LINE : 1;
    const sideways = event.shiftKey ? event.deltaX || event.deltaY : event.deltaX;
    if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      event.preventDefault();
      timeline.viewer.panPixels(sideways * unit);
    } else if (event.ctrlKey || event.metaKey || canvas === canvas.ownerDocument.activeElement) {
      event.preventDefault();
      timeline.viewer.zoomAt(point(event).x, Math.exp(event.deltaY * unit * WHEEL_RATE));
    } else {
      // The page scrolls, as it must when the pointer only passes over; say how to zoom instead.
      timeline.stage.nudge();
    }
  }, { passive: false });

  on("keydown", (event) => {
    if (isCombined(event)) return;
    const action = KEYS[event.key.length === 1 ? event.key.toLowerCase() : event.key];
    if (!action) return;
    event.preventDefault();
    event.stopPropagation();
    action(timeline, event);
  });

  return () => stop.abort();
}

/** @type {Record<DragMode, (timeline: Owner, drag: Drag, at: Pointer) => void>} */
const DRAGS = {
  overview: (timeline, _, at) => timeline.viewer.centreOverview(at.x),
  pan: (timeline, drag, at) => timeline.viewer.panPixels(drag.last.x - at.x),
  reorder: (timeline, drag, at) => timeline.pointing.reorder(drag.engine, at),
  measure: (timeline, drag, at) => timeline.pointing.measureBetween(drag.start, at),
  area: (timeline, drag, at) => timeline.pointing.measureArea(drag.start, at),
  zoom: (timeline, drag, at) => timeline.viewer.stretchRubber(drag.start.x, at.x),
};

/**
 * Two fingers: what lay under each of them stays there.
 *
 * @param {Owner} timeline
 * @param {Map<number, Pointer>} fingers
 * @param {number} pointer
 * @param {Pointer} at
 */
function pinch(timeline, fingers, pointer, at) {
  const [other] = [...fingers].filter(([id]) => id !== pointer).map(([, finger]) => finger);
  const before = fingers.get(pointer);
  fingers.set(pointer, at);
  if (!before) return;
  const [apart, now] = [Math.abs(before.x - other.x), Math.abs(at.x - other.x)];
  const middle = (at.x + other.x) / 2;
  if (apart > CLICK_SLACK && now > CLICK_SLACK) timeline.viewer.zoomAt(middle, apart / now);
  timeline.viewer.panPixels((before.x - at.x) / 2);
}
