// Which values of a document are checked, in which order, and how they are written into inputs and read from them.

import { icon, make } from "./dom.js";
import { fieldName, later, say } from "./language.js";
import { amountOf, dateOf, isTaxId, kindOf, localTaxId, shownValue } from "./local_values.js";

// As people check: the amounts, the number and its date, who, when it is due, where it is paid, the lines.
const OF_INVOICE = [
  "InvoiceTotal", "SubTotal", "TaxDetails", "TotalTax", "WithholdingRate", "WithholdingAmount", "InvoiceId", "InvoiceDate",
  "VendorName", "VendorTaxId", "CustomerName", "CustomerTaxId", "DueDate", "IBAN", "CurrencyCode", "Items",
];
const OF_STATEMENT = ["OpeningBalance", "ClosingBalance", "AccountHolder", "IBAN", "AccountNumber", "PeriodStart", "PeriodEnd", "CurrencyCode", "Movements"];
// The same value under a second name, which receipts have.
const SECOND_NAMES = ["Total", "MerchantName", "TransactionDate"];
export const LIST_COLUMNS = {
  TaxDetails: ["Type", "Rate", "Base", "Amount"],
  Items: ["Description", "Quantity", "UnitPrice", "TaxRate", "Amount"],
  Movements: ["Date", "ValueDate", "Description", "Amount", "Balance"],
};
/** The names of the fields to check: those of its kind, then whatever else was found; lists come last. */
export function fieldsToCheck({ kind, fields }) {
  const usual = kind === "bank_statement" ? OF_STATEMENT : OF_INVOICE;
  const rest = Object.keys(fields).filter((name) => !usual.includes(name) && !SECOND_NAMES.includes(name));
  const lines = usual.at(-1);
  return [...usual.slice(0, -1), ...rest.filter((name) => name !== lines), lines];
}

/** What an input's text means; null for nothing, and for what is no such value. */
export function valueOf(name, text) {
  const kind = kindOf(name);
  if (kind === "date") return dateOf(text);
  const line = text.replace(/\s+/g, " ").trim();
  if (kind === "text") return (isTaxId(name) ? localTaxId(line) : line) || null;
  return amountOf(text);
}

/** The input of a field. */
export function inputOf(id, name, field, more = { "data-name": name }) {
  const kind = kindOf(name);
  const mode = kind === "amount" || kind === "number" ? "decimal" : "text";
  const input = make("input", { id, class: `value-${kind}`, inputmode: mode, spellcheck: "false", maxlength: 10000, ...more });
  input.value = shownValue(name, field?.value ?? "");
  return input;
}

const ROW_TOOLS = [["split", "row_split", "split"], ["merge", "row_merge", "merge"], ["remove", "row_remove", "bin"]];

/** A list as a grid of inputs; `acts` is {add(list), split(list, row), merge(list, row), remove(list, row)}. */
export function listOf(name, { fields }, acts) {
  const rows = fields[name]?.value ?? [];
  const known = new Set(rows.flatMap((row) => Object.keys(row)));
  const columns = [...LIST_COLUMNS[name], ...[...known].filter((column) => !LIST_COLUMNS[name].includes(column))];
  const heads = columns.map((column) => say(make("th", { scope: "col" }), "{name}", { name: later(fieldName, column) }));
  const body = make("tbody", { id: `list-${name}` });
  body.rowOf = (row, cells) => line(name, columns, row, cells, acts);
  body.append(...rows.map((cells, row) => body.rowOf(row, cells)));
  const head = make("tr", {}, ...heads, make("th", { scope: "col" }, say(make("span", { class: "unseen" }), "delete")));
  const caption = make("caption", {}, say(make("span"), "{name}", { name: later(fieldName, name) }));
  const add = say(make("button", { type: "button", class: "small", onclick: () => acts.add(name) }), "row_add", { name: later(fieldName, name) });
  const table = make("table", { class: "check-list", "aria-keyshortcuts": "Alt+N Alt+S Alt+J Alt+Delete" }, caption, make("thead", {}, head), body);
  const keys = say(make("p", { class: "quiet row-keys" }), "row_keys");
  return make("div", { class: "check-rows", "data-list": name }, make("div", { class: "scroll" }, table), add, keys);
}

function line(list, columns, row, cells, acts) {
  const inputs = columns.map((column) => {
    const more = { "data-list": list, "data-row": row, "data-column": column };
    const input = inputOf(`cell-${list}-${row}-${column}`, column, cells[column], more);
    say(input, "cell_name", { column: later(fieldName, column), n: row + 1 }, "aria-label");
    return say(make("td", {}, input), "{name}", { name: later(fieldName, column) }, "data-label"); // where there is no room for heads
  });
  return make("tr", {}, ...inputs, make("td", { class: "row-tools" }, ...ROW_TOOLS.map(tool)));

  /** By keyboard they are Alt+S, Alt+J and Alt+Delete: three more stops a line would be in the way. */
  function tool([act, key, name]) {
    const button = make("button", { type: "button", class: "plain", tabindex: "-1", onclick: () => acts[act](list, row) }, icon(name));
    return say(say(button, key, { n: row + 1 }, "aria-label"), key, { n: row + 1 }, "title");
  }
}
