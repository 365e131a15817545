// The tables of a document as grids, with the cells that span others; each leads to its place on the page.

import { find, make } from "./dom.js";
import { quote, say } from "./language.js";
import { goToPlaces, lightUp } from "./pages.js";

const SHOWN = 200; // rows of a table; the files for spreadsheets have all of them

export function waitForTables() {
  find("panel-tables").replaceChildren(say(make("p", { class: "quiet" }), "wait_tables"));
}

/** `tables` is undefined where nobody looked for them. */
export function showTables(tables) {
  const parts = (tables ?? []).map(one);
  if (!parts.length) parts.push(say(make("p", { class: "quiet" }), tables ? "no_tables" : "not_searched"));
  find("panel-tables").replaceChildren(...parts);
}

function one(table, index) {
  const places = table.boxes.map((box, at) => ({ page: table.pages[at], box }));
  const title = make("button", { type: "button", class: "link", onclick: () => goToPlaces(places) });
  say(title, "table_number", { number: index + 1, page: table.page, rows: table.rows, columns: table.columns });
  const grid = make("table", { class: "grid" }, make("tbody", {}, ...rowsOf(table)));
  say(grid, "table_number", { number: index + 1, page: table.page, rows: table.rows, columns: table.columns }, "aria-label");
  const rest = table.rows > SHOWN ? [say(make("p", { class: "quiet" }), "more_in_files", { n: table.rows - SHOWN })] : [];
  return make("section", { class: "card" }, make("h2", {}, title), make("div", { class: "scroll", tabindex: 0 }, grid), ...rest);
}

function rowsOf({ rows, columns, cells }) {
  const shown = Math.min(rows, SHOWN);
  const taken = Array.from({ length: shown }, () => new Array(columns).fill(null));
  for (const cell of cells) {
    for (let row = cell.row; row < Math.min(shown, cell.row + cell.rowspan); row += 1) {
      for (let column = cell.column; column < cell.column + cell.colspan; column += 1) taken[row][column] = cell;
    }
  }
  return taken.map((line, row) => make("tr", {}, ...line.map((cell, column) => cellOf(cell, row, column, shown))));
}

/** The element of a cell at its first place; nothing at the others, an empty one where there is no cell. */
function cellOf(cell, row, column, shown) {
  if (!cell) return make("td");
  if (cell.row !== row || cell.column !== column) return null;
  const spans = { rowspan: Math.min(cell.rowspan, shown - row), colspan: cell.colspan };
  const isNumber = cell.value !== null && /^-?\d+(\.\d+)?$/.test(cell.value);
  const node = quote(make(cell.header ? "th" : "td", { ...spans, class: isNumber ? "number" : null }), cell.text);
  const places = cell.boxes.map((box) => ({ page: cell.page, box }));
  if (places.length) node.addEventListener("pointerenter", () => lightUp(places));
  return node;
}
