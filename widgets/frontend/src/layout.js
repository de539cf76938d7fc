// Where everything lies on the canvas, in CSS pixels.

/**
 * @import { Group } from "./model.js"
 * @import { Lane, Track } from "./tracks.js"
 */

/** @typedef {{ track: Track, y: number, height: number, lane: Lane }} Row */

/** @typedef {{ lane: Lane, y: number, height: number, rows: Row[], band: Row | null }} LaneBox */

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
 * @property {LaneBox[]} lanes
 * @property {{ y: number, height: number } | null} atOnce
 * @property {Map<number, LaneBox>} boxOfLane
 */

/** @typedef {ReturnType<typeof buildLayout>} Layout */

/**
 * What lies at a height.
 *
 * @typedef {{ area: "axis" | "overview" | "none", group?: Box, lane?: undefined, row?: undefined }
 *   | { area: "header" | "at once", group: Box, lane?: undefined, row?: undefined }
 *   | { area: "lane", group: Box, lane: LaneBox, row: Row }} Hit
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
 * @param {{ lanes: Lane[], group?: Pick<Group, "remarks" | "thin"> }[]} parts lanes of each group, as `buildLanes` gives them
 * @param {number} width of the canvas
 * @param {number[]} [shown] indices of the groups from top to bottom
 * @param {{ collapsed?: Set<number>, ownAxes?: boolean, atOnceOf?: (index: number) => boolean }} [more] groups that show their header only;
 * whether each has an axis of its own; whether a group has a lane "at once"
 */
export function buildLayout(parts, width, shown = [...parts.keys()], { collapsed = new Set(), ownAxes = false, atOnceOf = () => false } = {}) {
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
    const lanes = (collapsed.has(index) ? [] : drawn).map((lane, place, all) => {
      const box = thin ? placeThin(lane, y, thin) : placeLane(lane, y);
      gap = thin ? THIN_GAP : lane.host && all[place + 1] && !all[place + 1].host ? HOST_GAP : LANE_GAP;
      y += box.height + gap;
      return box;
    });
    const atOnce = lanes.length && atOnceOf(index) ? { y: y - gap + AT_ONCE_GAP, height: AT_ONCE } : null;
    if (atOnce) y = atOnce.y + AT_ONCE + gap;
    return { index, top, remarks, body, axis, bottom: y - gap, lanes, atOnce, boxOfLane: new Map(lanes.map((box) => [box.lane.index, box])) };
  });
  const boxes = [];
  for (const box of groups) boxes[box.index] = box;
  const overview = { top: y + OVERVIEW_GAP, height: groups.length * OVERVIEW_ROW + 6, row: OVERVIEW_ROW };
  return { width, height: overview.top + overview.height + 4, axis: AXIS, foot: overview.top - 8, header: HEADER, plot, groups, boxes, overview };
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
 * What lies at a point: {area: "axis" | "header" | "lane" | "at once" | "overview" | "none", group?, lane?, row?}.
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
  if (group.atOnce && y >= group.atOnce.y - 1) return { area: "at once", group };
  const lane = group.lanes.find((box) => y >= box.y - 1 && y < box.y + box.height + 1);
  if (!lane) return { area: "none", group };
  const row = (lane.band && y < lane.y + BAND ? lane.band : lane.rows.find((box) => y < box.y + box.height)) ?? lane.rows.at(-1) ?? lane.band;
  return row ? { area: "lane", group, lane, row } : { area: "none", group };
}
