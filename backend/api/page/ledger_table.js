// The rows of the ledger and their sums.

import { find, icon, make } from "./dom.js";
import { later, quote, say } from "./language.js";
import { COLUMNS } from "./ledger_frame.js";
import { centsOf, localAmount, localDate, localTaxId } from "./local_values.js";

const SUMMED = ["base", "tax", "withholding", "total"];

/** Whether a row is of an invoice, a receipt or a statement, and no other document that is kept. */
export const isPaper = (row) => row.kind !== null;

/** Draw rows; `choose(row, isChosen)` is called when one is ticked. */
export function drawRows(rows, chosen, choose) {
  find("ledger-rows").replaceChildren();
  addRows(rows, chosen, choose);
}

/** Draw rows below those that are there. */
export function addRows(rows, chosen, choose) {
  find("ledger-rows").append(...rows.map((row) => line(row, chosen.has(`${row.document_id}:${row.index}`), choose)));
}

function line(row, isChosen, choose) {
  const name = row.number ?? row.filename;
  const box = say(make("input", { type: "checkbox", onchange: (event) => choose(row, event.target.checked) }), "choose_row", { name }, "aria-label");
  box.checked = isChosen;
  const cells = COLUMNS.map(([key, , isNumber]) => make(key === "number" ? "th" : "td", cellKind(key, isNumber), ...content(row, key)));
  say(cells.at(-1), "column_due", {}, "data-label"); // for cards, which have no heads
  return make("tr", { "data-row": `${row.document_id}:${row.index}` }, make("td", {}, box), ...cells);
}

const cellKind = (key, isNumber) => ({ "data-column": key, class: isNumber ? "number" : null, scope: key === "number" ? "row" : null });

function content(row, key) {
  if (key === "state") return [say(make("span", { class: `state ${row.state}` }), `state_${row.state}`), ...marks(row)];
  if (key === "number") return [opening(row)];
  if (key === "supplier") return [quote(make("span"), row.supplier ?? ""), make("span", { class: "tax-id quiet" }, local(localTaxId, row.tax_id))];
  if (key === "tax") return taxes(row);
  if (key === "date" || key === "due_date") return [local(localDate, row[key])];
  if (key === "total" && row.foreign) return [local(localAmount, row.total), " ", quote(make("span", { class: "quiet" }), row.currency)];
  if (SUMMED.includes(key)) return [local(localAmount, row[key])];
  return [quote(make("span"), row[key] ?? "")];
}

const local = (form, value) => say(make("span"), "{value}", { value: later(form, value ?? "") });

function opening(row) {
  const place = row.number ?? row.filename;
  const where = isPaper(row) ? `${row.document_id}:${row.index}` : row.document_id; // there is nothing to check
  return quote(make("a", { href: `#document=${where}`, title: row.filename, class: row.number ? "whole" : null }), place);
}

/** The taxes by rate where there are several, else the one. */
function taxes({ taxes: lines, tax }) {
  const surcharges = lines.map((one) => ({ rate: one.surcharge_rate, amount: one.surcharge, key: "surcharge_line" }));
  const known = [...lines, ...surcharges].filter(({ rate, amount }) => rate !== null && amount !== null);
  if (!known.length) return [local(localAmount, tax)];
  return known.map(({ rate, amount, key = "tax_line" }) =>
    say(make("span", { class: "tax-line" }), key, { rate: later((value) => localAmount(value, { least: 0 }), rate), amount: later(localAmount, amount) }),
  );
}

function marks(row) {
  const found = [];
  if (row.duplicates) {
    const first = row.duplicate_of;
    const mark = say(make("span", { class: "badge bad" }), first ? "mark_duplicate_of" : "mark_duplicates", { name: first?.filename ?? "", n: row.duplicates });
    found.push(mark);
  }
  if (row.totals_agree === false) found.push(make("span", { class: "check bad" }, icon("cross"), say(make("span"), "mark_differs")));
  if (row.totals_agree === true) found.push(make("span", { class: "check good" }, icon("check"), say(make("span"), "mark_agrees")));
  return found;
}

/** Say how the table is sorted. */
export function markSorted({ by, falling }) {
  for (const head of find("ledger-head").querySelectorAll("[data-column]")) {
    if (head.dataset.column === by) head.setAttribute("aria-sort", falling ? "descending" : "ascending");
    else head.removeAttribute("aria-sort");
  }
}

/** A line of sums for each currency of these rows. */
export function drawSums(rows) {
  const byCurrency = Map.groupBy(rows.filter((row) => row.kind !== "bank_statement" && row.total !== null), (row) => row.currency ?? "");
  find("ledger-sums").replaceChildren(...[...byCurrency].map(([currency, own]) => sum(currency, own)));
}

function sum(currency, rows) {
  const of = (key) => (rows.reduce((cents, row) => cents + (centsOf(row[key]) ?? 0), 0) / 100).toFixed(2);
  const cells = COLUMNS.slice(4).map(([key]) => make("td", cellKind(key, true), ...(SUMMED.includes(key) ? [local(localAmount, of(key))] : [])));
  const title = say(make("th", { scope: "row", colspan: 5 }), currency ? "sum_in" : "sum_of", { n: rows.length, currency });
  return make("tr", { "data-currency": currency }, title, ...cells);
}
