// The frame of the ledger: where the table, its filters, the queue and the validation screen are put. Made once.

import { find, icon, make } from "./dom.js";
import { say } from "./language.js";

export const COLUMNS = [
  // key of a row, key of its words, whether it is a number
  ["state", "column_state"],
  ["date", "column_date"],
  ["supplier", "column_supplier"],
  ["number", "column_number"],
  ["base", "column_base", true],
  ["tax", "column_taxes", true],
  ["withholding", "column_withholding", true],
  ["total", "column_total", true],
  ["due_date", "column_due"],
];

const button = (id, key, more = {}) => say(make("button", { type: "button", id, ...more }), key);

/** Put the frame into the page. */
export function makeLedgerFrame() {
  find("ledger-view").replaceChildren(
    make("div", { id: "ledger-notices", class: "ledger-notices" }),
    make(
      "div",
      { id: "ledger-table-view", class: "ledger-table-view" },
      bar(),
      filters(),
      say(make("p", { id: "ledger-none", class: "notice", hidden: true }), "ledger_none"),
      say(make("p", { id: "ledger-no-match", class: "quiet", hidden: true }), "ledger_no_match"),
      table(),
      button("ledger-more", "ledger_more", { hidden: true }),
      missing(),
    ),
    make("div", { id: "validation", class: "validation", hidden: true }),
  );
}

function bar() {
  const title = say(make("h1", { id: "ledger-title", tabindex: "-1" }), "view_ledger");
  const facts = make("p", { id: "ledger-facts", class: "quiet" });
  const input = make("input", { type: "file", id: "documents", multiple: true, hidden: true });
  const actions = make("div", { class: "bar-actions" }, button("delete-chosen", "delete", { class: "danger-text", hidden: true }), make("div", { id: "collect-chosen", class: "menu-place", hidden: true }), exporting(), button("add-documents", "add_documents", { class: "primary" }), input);
  return make("div", { class: "bar" }, make("div", { class: "bar-file" }, title, facts), actions);
}

function exporting() {
  const option = (value, key) => say(make("option", { value }), key);
  const formats = make("select", { id: "export-format" }, option("xlsx", "export_xlsx"), option("csv", "export_csv"), option("json", "export_json"));
  say(formats, "export_format", {}, "aria-label");
  const submit = make("button", { type: "submit", id: "export-button" }, icon("download"), say(make("span"), "export"));
  return make("form", { id: "export", class: "export", novalidate: true }, formats, submit);
}

function filters() {
  const field = (id, key, control) => make("div", { class: "field" }, say(make("label", { for: id }), key), control);
  const state = make(
    "select",
    { id: "filter-state", name: "state" },
    ...["", "to_review", "confirmed"].map((value) => say(make("option", { value }), value ? `state_${value}` : "filter_any")),
  );
  const text = make("input", { type: "search", id: "filter-text", name: "text", autocomplete: "off" });
  const others = make("input", { type: "checkbox", name: "others" });
  const doubles = make("input", { type: "checkbox", name: "doubles" });
  const form = make(
    "form",
    { id: "ledger-filters", class: "ledger-filters", hidden: true },
    field("filter-text", "filter_text", text),
    field("filter-state", "column_state", state),
    field("filter-from", "filter_from", make("input", { type: "date", id: "filter-from", name: "from" })),
    field("filter-until", "filter_until", make("input", { type: "date", id: "filter-until", name: "until" })),
    make("label", { class: "toggle" }, doubles, say(make("span"), "filter_doubles")),
    make("label", { class: "toggle", id: "filter-others", hidden: true }, others, make("span")),
  );
  return say(form, "filters", {}, "aria-label");
}

function table() {
  const all = say(make("input", { type: "checkbox", id: "choose-all" }), "choose_all", {}, "aria-label");
  const heads = COLUMNS.map(([name, key, isNumber]) => {
    const sorting = say(make("button", { type: "button", class: "sort", "data-sort": name }), key);
    return make("th", { scope: "col", class: isNumber ? "number" : null, "data-column": name }, sorting);
  });
  const head = make("thead", { id: "ledger-head" }, make("tr", {}, make("th", { scope: "col" }, all), ...heads));
  const caption = make("caption", { id: "ledger-chosen", class: "quiet" });
  const grid = make("table", { class: "ledger-grid" }, caption, head, make("tbody", { id: "ledger-rows" }), make("tfoot", { id: "ledger-sums" }));
  const scroll = make("div", { id: "ledger-scroll", class: "ledger-scroll", tabindex: "0", role: "region", hidden: true }, grid);
  return say(scroll, "ledger_list", {}, "aria-label");
}

function missing() {
  const title = say(make("h2"), "missing_title");
  return make("section", { id: "missing", class: "missing", hidden: true }, title, make("ul", { id: "missing-list" }));
}
