// The frame of the library: where collections, files, filters and hits are put. Made once, when it is first opened.

import { find, icon, make } from "./dom.js";
import { say } from "./language.js";

const button = (id, key, more = {}) => say(make("button", { type: "button", id, ...more }), key);

/** Put the frame into the page; `hitView` is the dialog that shows a hit. */
export function makeFrame(hitView) {
  find("library-view").replaceChildren(
    bar(),
    make("div", { id: "library-notices", class: "library-notices" }),
    searchForm(),
    say(make("section", { id: "filters", class: "filters", hidden: true }), "filters", {}, "aria-label"),
    say(make("ul", { id: "filter-chips", class: "filter-chips", hidden: true }), "filters_set", {}, "aria-label"),
    tabs(),
    filesPanel(),
    resultsPanel(hitView),
  );
}

function bar() {
  const title = say(make("h2", { id: "library-title", tabindex: "-1" }), "view_library");
  const facts = make("p", { id: "store-facts", class: "quiet" });
  const list = say(make("select", { id: "store", hidden: true }), "store", {}, "aria-label");
  const remove = make("button", { type: "button", id: "delete-store", class: "plain", hidden: true }, icon("bin"));
  say(say(remove, "store_delete", {}, "aria-label"), "store_delete", {}, "title");
  const actions = make("div", { class: "bar-actions" }, list, button("new-store", "store_new"), remove);
  return make("div", { class: "bar" }, make("div", { class: "bar-file" }, title, facts), actions);
}

function searchForm() {
  const input = make("input", { type: "search", id: "query", name: "query", autocomplete: "off", enterkeyhint: "search", maxlength: 20000 });
  say(say(input, "query_hint", {}, "placeholder"), "query", {}, "aria-label");
  const submit = say(make("button", { type: "submit", class: "primary" }), "search");
  const filters = button("filters-button", "filters", { "aria-expanded": "false", "aria-controls": "filters" });
  return say(make("form", { id: "search", class: "search", role: "search", novalidate: true }, input, submit, filters), "search", {}, "aria-label");
}

function tabs() {
  const tab = (name, key) => say(make("button", { type: "button", role: "tab", id: `tab-${name}`, "aria-controls": `panel-${name}` }), key, { n: 0 });
  const list = make("div", { class: "tabs library-tabs", role: "tablist" }, tab("files", "tab_files"), tab("results", "tab_results"));
  return say(list, "library_parts", {}, "aria-label");
}

function filesPanel() {
  const progress = say(make("progress", { id: "store-progress", hidden: true }), "store_progress", {}, "aria-label");
  const told = make("p", { id: "store-progress-text", class: "quiet", hidden: true });
  const rows = say(make("ul", { id: "file-rows", class: "file-rows" }), "files_list", {}, "aria-label");
  const none = say(make("p", { id: "no-files", class: "quiet", hidden: true }), "files_none");
  const more = button("more-files", "files_more", { hidden: true });
  return make("div", { role: "tabpanel", id: "panel-files", "aria-labelledby": "tab-files", tabindex: "0" }, progress, told, none, rows, more);
}

function resultsPanel(hitView) {
  const told = say(make("p", { id: "hits-told", class: "quiet" }), "results_before");
  const warnings = make("ul", { id: "search-warnings", class: "warnings", hidden: true });
  const list = say(make("ol", { id: "hits", class: "hits" }), "hits_list", {}, "aria-label");
  const more = button("more-hits", "hits_more", { hidden: true });
  const left = make("div", { class: "hits-column" }, told, warnings, list, more);
  const panel = { role: "tabpanel", id: "panel-results", "aria-labelledby": "tab-results", tabindex: "0", hidden: true };
  return make("div", { ...panel, class: "results" }, left, hitView);
}
