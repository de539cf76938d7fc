// Where everything lies on the canvas, in CSS pixels.

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

/** Width of the column of lane names: smaller where the page is narrow. */
export const gutterWidth = (width) => (width < NARROW_PAGE ? 88 : 112);

/**
 * @param {Array<{lanes: Array}>} parts lanes of each group, as `buildLanes` gives them
 * @param {number} width of the canvas
 * @param {number[]} shown indices of the groups from top to bottom
 * @param {{collapsed?: Set<number>, ownAxes?: boolean, atOnceOf?: (index: number) => boolean}} more groups that show their header only;
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

function placeLane(lane, top) {
  const row = lane.rows.length > 2 ? NARROW_ROW : lane.host ? HOST_ROW : STREAM_ROW;
  const first = top + (lane.band ? BAND : 0);
  const rows = lane.rows.map((track, index) => ({ track, y: first + index * row + 1, height: row - 2, lane }));
  const height = (lane.band ? BAND : 0) + Math.max(lane.rows.length, 1) * row;
  const band = lane.band && { track: lane.band, y: top + 1, height: BAND - 2, lane };
  return { lane, y: top, height, rows, band };
}

/** A multiprocessor: its rows share one height. */
function placeThin(lane, top, height) {
  const row = height / lane.rows.length;
  return { lane, y: top, height, band: null, rows: lane.rows.map((track, index) => ({ track, y: top + index * row, height: row, lane })) };
}

/** What lies at a point: {area: "axis" | "header" | "lane" | "at once" | "overview" | "none", group?, lane?, row?}. */
export function hitTest(layout, y) {
  if (y < layout.axis) return { area: "axis" };
  if (y >= layout.overview.top - 4) return { area: "overview" };
  const group = layout.groups.find(({ top, bottom }) => y >= top && y < bottom + LANE_GAP);
  if (!group) return { area: "none" };
  if (y < group.body) return { area: "header", group };
  if (group.atOnce && y >= group.atOnce.y - 1) return { area: "at once", group };
  const lane = group.lanes.find((box) => y >= box.y - 1 && y < box.y + box.height + 1);
  if (!lane) return { area: "none", group };
  const row = lane.band && y < lane.y + BAND ? lane.band : lane.rows.find((box) => y < box.y + box.height) ?? lane.rows.at(-1);
  return { area: "lane", group, lane, row: row ?? lane.band };
}
