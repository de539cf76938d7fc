// Where everything lies on the canvas, in CSS pixels.

/**
 * @import { GpuHeader } from "./header.js"
 * @import { Group } from "./model.js"
 * @import { Lane, Track } from "./tracks.js"
 */

/** @typedef {{ track: Track, y: number, height: number, lane: Lane }} Row */

/** @typedef {{ lane: Lane, y: number, height: number, rows: Row[], band: Row | null }} LaneBox */

/**
 * The lanes of one GPU with its lane "at once", below a header at `top` where an engine has several; the host's then stand before them. `of` is
 * its place among the engine's GPUs, -1 for the host. Collapsed to the lane "at once", it has no other lanes.
 *
 * @typedef {object} Section
 * @property {number} of
 * @property {number | null} top
 * @property {Lane[]} own its lanes
 * @property {LaneBox[]} lanes of them those that are drawn
 * @property {{ y: number, height: number } | null} atOnce
 * @property {boolean} closed
 * @property {number} bottom
 */

/**
 * An engine: `remarks` are the heights of the lines of its remarks where each has its own, `body` is where its lanes begin, `axis` where its
 * times are written.
 *
 * @typedef {object} Box
 * @property {number} index
 * @property {number} top
 * @property {number[]} remarks
 * @property {number} body
 * @property {number} axis
 * @property {number} bottom
 * @property {LaneBox[]} lanes of all sections
 * @property {Section[]} sections
 * @property {Map<number, LaneBox>} boxOfLane of a lane in a collapsed section a row without spans, the lane "at once" of its GPU
 */

/** @typedef {ReturnType<typeof buildLayout>} Layout */

/**
 * What lies at a height.
 *
 * @typedef {{ area: "axis" | "overview" | "none", group?: Box, lane?: undefined, row?: undefined, section?: undefined }
 *   | { area: "header", group: Box, lane?: undefined, row?: undefined, section?: undefined }
 *   | { area: "GPU" | "at once", group: Box, section: Section, lane?: undefined, row?: undefined }
 *   | { area: "lane", group: Box, section: Section, lane: LaneBox, row: Row }} Hit
 */

const AXIS = 30;
const GROUP_GAP = 12;
const HEADER = 26;
// On a narrow page each remark has a line of its own below the header's first.
const REMARK = 16;
const NARROW_PAGE = 560;
// Room for the ticks of an engine that is drawn at its own scale.
const OWN_AXIS = 16;
const LANE_GAP = 2;
// Room for the arrows from the host's calls to the streams.
const HOST_GAP = 8;
const HOST_ROW = 16;
const STREAM_ROW = 20;
const NARROW_ROW = 14;
const BAND = 6;
// The lane "at once" under the others.
const AT_ONCE_GAP = 4;
const AT_ONCE = 16;
const AT_ONCE_ALONE = 22;
const GPU_GAP = 8;
const GPU_HEADER = 20;
const OVERVIEW_GAP = 14;
const OVERVIEW_ROW = 5;
const RIGHT_MARGIN = 12;
// Multiprocessors: the height of each, by the most rows that one has.
const THIN = [4, 4, 6, 6];
const THIN_GAP = 1;

/**
 * Width of the column of lane names: smaller where the page is narrow.
 *
 * @param {number} width
 */
export const gutterWidth = (width) => (width < NARROW_PAGE ? 88 : 112);

/**
 * @param {{ lanes: Lane[], group?: Pick<Group, "remarks" | "thin" | "gpus"> }[]} parts lanes of each group, as `buildLanes` gives them
 * @param {number} width of the canvas
 * @param {number[]} [shown] indices of the groups from top to bottom
 * @param {object} [more]
 * @param {Set<number>} [more.collapsed] groups that show their header only
 * @param {boolean} [more.ownAxes] whether each has an axis of its own
 * @param {(index: number) => boolean} [more.atOnceOf] whether a group has lanes "at once"
 * @param {(index: number, of: number) => boolean} [more.isClosed] whether a GPU shows its lane "at once" only
 */
export function buildLayout(
  parts, width, shown = [...parts.keys()], { collapsed = new Set(), ownAxes = false, atOnceOf = () => false, isClosed = () => false } = {},
) {
  const plot = { left: gutterWidth(width), right: Math.max(width - RIGHT_MARGIN, gutterWidth(width) + 20) };
  let y = AXIS;
  const groups = shown.map((index, position) => {
    if (position) y += GROUP_GAP;
    const top = y;
    const { lanes: drawn, group } = parts[index];
    const remarks = width < NARROW_PAGE ? (group?.remarks ?? []).map((_, line) => top + HEADER + REMARK * (line + 0.3)) : [];
    y += HEADER + REMARK * remarks.length;
    const axis = ownAxes && !collapsed.has(index) ? (y += OWN_AXIS) : AXIS;
    const body = y;
    let gap = 0;
    const thin = group?.thin ? THIN[Math.max(...drawn.map(({ rows }) => rows.length))] : 0;
    /** @type {Map<number, LaneBox>} */
    const boxOfLane = new Map();
    const sections = (collapsed.has(index) ? [] : sectionsOf(drawn, group?.gpus ?? [])).map(({ of, lanes: own, headed }) => {
      if (headed) y += GPU_GAP - gap;
      const top = headed ? y : null;
      if (headed) y += GPU_HEADER;
      gap = 0;
      const closed = headed && isClosed(index, of);
      const lanes = (closed ? [] : own).map((lane, place) => {
        const box = thin ? placeThin(lane, y, thin) : placeLane(lane, y);
        gap = thin ? THIN_GAP : lane.host && own[place + 1] && !own[place + 1].host ? HOST_GAP : LANE_GAP;
        y += box.height + gap;
        boxOfLane.set(lane.index, box);
        return box;
      });
      const atOnce = closed || (of >= 0 && own.length && atOnceOf(index)) ? { y: closed ? y : y - gap + AT_ONCE_GAP, height: closed ? AT_ONCE_ALONE : AT_ONCE } : null;
      if (atOnce) y = atOnce.y + atOnce.height + gap;
      if (atOnce && closed) {
        for (const lane of own) boxOfLane.set(lane.index, { ...atOnce, lane, rows: [], band: null });
      }
      return { of, top, own, lanes, atOnce, closed, bottom: y - gap };
    });
    return { index, top, remarks, body, axis, bottom: y - gap, lanes: sections.flatMap(({ lanes }) => lanes), sections, boxOfLane };
  });
  const boxes = [];
  for (const box of groups) boxes[box.index] = box;
  const strips = shown.reduce((sum, index) => sum + (parts[index].group?.gpus.length ?? 1), 0);
  const overview = { top: y + OVERVIEW_GAP, height: strips * OVERVIEW_ROW + 6, row: OVERVIEW_ROW };
  const height = overview.top + overview.height + 4;
  return { width, height, axis: AXIS, foot: overview.top - 8, header: HEADER, gpuHeader: GPU_HEADER, plot, groups, boxes, overview };
}

/**
 * Lanes by their GPU, the host's first; all of them where there is one GPU.
 *
 * @param {Lane[]} lanes
 * @param {GpuHeader[]} gpus
 */
function sectionsOf(lanes, gpus) {
  if (gpus.length < 2) return [{ of: 0, lanes, headed: false }];
  return [-1, ...gpus.map(({ gpu }) => gpu)].map((gpu, place) => ({ of: place - 1, lanes: lanes.filter((lane) => lane.gpu === gpu), headed: place > 0 }));
}

/**
 * @param {Lane} lane
 * @param {number} top
 * @returns {LaneBox}
 */
function placeLane(lane, top) {
  const row = lane.rows.length > 2 ? NARROW_ROW : lane.host ? HOST_ROW : STREAM_ROW;
  const first = top + (lane.band ? BAND : 0);
  const rows = lane.rows.map((track, index) => ({ track, y: first + index * row + 1, height: row - 2, lane }));
  const height = (lane.band ? BAND : 0) + Math.max(lane.rows.length, 1) * row;
  const band = lane.band && { track: lane.band, y: top + 1, height: BAND - 2, lane };
  return { lane, y: top, height, rows, band };
}

/**
 * A multiprocessor: its rows share one height.
 *
 * @param {Lane} lane
 * @param {number} top
 * @param {number} height
 * @returns {LaneBox}
 */
function placeThin(lane, top, height) {
  const row = height / lane.rows.length;
  return { lane, y: top, height, band: null, rows: lane.rows.map((track, index) => ({ track, y: top + index * row, height: row, lane })) };
}

/**
 * What lies at a point: {area: "axis" | "header" | "GPU" | "lane" | "at once" | "overview" | "none", group?, section?, lane?, row?}.
 *
 * @param {Layout} layout
 * @param {number} y
 * @returns {Hit}
 */
export function hitTest(layout, y) {
  if (y < layout.axis) return { area: "axis" };
  if (y >= layout.overview.top - 4) return { area: "overview" };
  const group = layout.groups.find(({ top, bottom }) => y >= top && y < bottom + LANE_GAP);
  if (!group) return { area: "none" };
  if (y < group.body) return { area: "header", group };
  const section = group.sections.find(({ bottom }) => y < bottom + LANE_GAP);
  if (!section) return { area: "none", group };
  if (section.top !== null && y < section.top) return { area: "none", group };
  if (section.top !== null && y < section.top + GPU_HEADER) return { area: "GPU", group, section };
  if (section.atOnce && y >= section.atOnce.y - 1) return { area: "at once", group, section };
  const lane = section.lanes.find((box) => y >= box.y - 1 && y < box.y + box.height + 1);
  if (!lane) return { area: "none", group };
  const row = (lane.band && y < lane.y + BAND ? lane.band : lane.rows.find((box) => y < box.y + box.height)) ?? lane.rows.at(-1) ?? lane.band;
  return row ? { area: "lane", group, section, lane, row } : { area: "none", group };
}
