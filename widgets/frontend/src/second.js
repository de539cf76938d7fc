// The second bundle: what is loaded when it is needed. Python sends it to notebooks; a report holds it only where it has something to show.

export { DetailsView } from "./details_view.js";
export { sortTables } from "./sorting.js";
export { Tiles } from "./tiles.js";
