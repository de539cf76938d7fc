// Where everything lies on the canvas, in CSS pixels.

const AXIS = 30;
const GROUP_GAP = 12;
const HEADER = 26;
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

/** Width of the column of lane names: smaller where the page is narrow. */
export const gutterWidth = (width) => (width < 560 ? 84 : 104);

/**
 * @param {Array<{lanes: Array}>} groups lanes of each group, as `buildLanes` gives them
 * @param {number} width of the canvas
 * @param {(index: number) => boolean} atOnceOf whether a group has a lane "at once"
 */
export function buildLayout(groups, width, atOnceOf = () => false) {
  const plot = { left: gutterWidth(width), right: Math.max(width - RIGHT_MARGIN, gutterWidth(width) + 20) };
  let y = AXIS;
  const placed = groups.map(({ lanes }, index) => {
    if (index) y += GROUP_GAP;
    const top = y;
    y += HEADER;
    const body = y;
    let gap = 0;
    const placedLanes = lanes.map((lane, position) => {
      const box = placeLane(lane, y);
      gap = lane.host && lanes[position + 1] && !lanes[position + 1].host ? HOST_GAP : LANE_GAP;
      y += box.height + gap;
      return box;
    });
    const atOnce = atOnceOf(index) && placedLanes.length ? { y: y - gap + AT_ONCE_GAP, height: AT_ONCE } : null;
    if (atOnce) y = atOnce.y + AT_ONCE + gap;
    return { index, top, body, bottom: y - gap, lanes: placedLanes, atOnce };
  });
  const overview = { top: y + OVERVIEW_GAP, height: groups.length * OVERVIEW_ROW + 6, row: OVERVIEW_ROW };
  return { width, height: overview.top + overview.height + 4, axis: AXIS, header: HEADER, plot, groups: placed, overview };
}

function placeLane(lane, top) {
  const row = lane.rows.length > 2 ? NARROW_ROW : lane.host ? HOST_ROW : STREAM_ROW;
  const first = top + (lane.band ? BAND : 0);
  const rows = lane.rows.map((track, index) => ({ track, y: first + index * row + 1, height: row - 2, lane }));
  const height = (lane.band ? BAND : 0) + Math.max(lane.rows.length, 1) * row;
  const band = lane.band && { track: lane.band, y: top + 1, height: BAND - 2, lane };
  return { lane, y: top, height, rows, band };
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
  const row = lane.band && y < lane.y + BAND ? lane.band : lane.rows.find((box) => y < box.y + box.height + 1) ?? lane.rows.at(-1);
  return { area: "lane", group, lane, row: row ?? lane.band };
}
