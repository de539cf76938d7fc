// Tables of a report or of JupyterLab's viewer, sorted by the column whose heading is pressed.

import { aria, make } from "./dom.js";

const NUMBER = /^(−?[\d.,]+)( %|×)?( \(.*\)| faster| slower)?$/;

/**
 * The number in a cell: of "2.0× slower" 0.5, of "5 % faster" 1.05; NaN where there is none.
 *
 * @param {string} text
 */
function numberIn(text) {
  const [, digits, unit, rest] = NUMBER.exec(text) ?? [];
  const number = parseFloat(digits?.replace("−", "-").replaceAll(",", ""));
  const times = unit === "×" ? number : 1 + number / 100;
  return rest === " faster" ? times : rest === " slower" ? 1 / times : number;
}

/**
 * The order of cells, as places in the list: numbers from the largest down, texts by the alphabet; `turned` the other way round. Cells without a
 * number stay behind those with one.
 *
 * @param {string[]} cells
 * @param {boolean} turned
 */
export function orderOf(cells, turned) {
  const numbers = cells.map(numberIn);
  const way = turned ? -1 : 1;
  /** @type {(a: number, b: number) => number} */
  const byNumber = (a, b) => (+Number.isNaN(numbers[a]) - +Number.isNaN(numbers[b])) || way * (numbers[b] - numbers[a]) || 0;
  /** @type {(a: number, b: number) => number} */
  const byText = (a, b) => way * cells[a].localeCompare(cells[b]);
  return [...cells.keys()].sort(numbers.every(Number.isNaN) ? byText : byNumber);
}

/**
 * Make headings buttons. The tables in one `.ss-sortable` are one, whose last rows unfold; rows in a foot stay there.
 *
 * @param {ParentNode} page
 */
export function sortTables(page) {
  for (const box of /** @type {NodeListOf<HTMLElement>} */ (page.querySelectorAll(".ss-sortable"))) {
    const bodies = [...box.querySelectorAll("tbody")];
    /** @type {HTMLTableCellElement[]} */
    const headings = [...box.querySelectorAll("th")];
    for (const heading of headings) {
      const button = make("button", "", heading.textContent);
      button.type = "button";
      button.addEventListener("click", () => sort(heading));
      heading.replaceChildren(button);
      aria(heading, { sort: "none" });
    }
    /** @param {HTMLTableCellElement} by */
    const sort = (by) => {
      const rows = bodies.flatMap((body) => [...body.rows]);
      const sizes = bodies.map((body) => body.rows.length);
      const falls = by.ariaSort === "descending";
      const cells = rows.map((row) => row.cells[by.cellIndex].textContent.trim());
      const order = orderOf(cells, falls);
      bodies.forEach((body, at) => body.append(...order.splice(0, sizes[at]).map((place) => rows[place])));
      for (const heading of headings) {
        aria(heading, { sort: heading.cellIndex !== by.cellIndex ? "none" : falls ? "ascending" : "descending" });
      }
    };
  }
}
