// The fields of an invoice, a receipt or a statement beside the paper; pointing at one lights it up where it stands.

import { copyButton } from "./clipboard.js";
import { find, icon, make } from "./dom.js";
import { equationIn, fieldName, later, quote, say } from "./language.js";
import { kindOf, localAmount, shownValue } from "./local_values.js";
import { goToPlaces, lightUp } from "./pages.js";
import { whyOf } from "./reasons.js";

const LISTS = ["Items", "TaxDetails", "Movements"];
const SHOWN = 200; // rows of a list; the files for spreadsheets have all of them

export function waitForFields() {
  find("panel-fields").replaceChildren(say(make("p", { class: "quiet" }), "wait_fields"));
}

/** `result.fields` is undefined where nobody looked for them. Returns whether there are any. */
export function showFields({ fields, valid }) {
  const panel = find("panel-fields");
  if (!fields) {
    panel.replaceChildren(say(make("p", { class: "quiet" }), "not_searched"));
    return false;
  }
  const names = Object.keys(fields);
  if (!names.length) {
    panel.replaceChildren(say(make("p", { class: "quiet" }), "no_fields"));
    return false;
  }
  const single = names.filter((name) => !LISTS.includes(name));
  const caption = say(make("caption", { class: "unseen" }), "tab_fields");
  const table = make("table", { class: "field-table" }, caption, make("tbody", {}, ...single.flatMap((name) => rows(name, fields[name]))));
  const lists = LISTS.filter((name) => name in fields).map((name) => list(name, fields[name].value));
  panel.replaceChildren(...totals(valid), table, ...lists);
  return true;
}

/** Whether the amounts agree: said aloud only where it could be checked. */
function totals(valid) {
  if (typeof valid?.totals !== "boolean") return [];
  const kind = valid.totals ? "good" : "bad";
  const words = say(make("span"), valid.totals ? "totals_agree" : "totals_differ");
  const line = make("p", { class: `check totals ${kind}` }, icon(valid.totals ? "check" : "cross"), words);
  const details = (valid.differences ?? []).map(({ equation, expected, printed }) =>
    say(make("li"), "difference", { equation: later(equationIn, equation), expected: later(localAmount, expected), printed: later(localAmount, printed) }),
  );
  return details.length ? [line, make("ul", { class: "differences" }, ...details)] : [line];
}

function rows(name, field) {
  const row = make(
    "tr",
    {},
    say(make("th", { scope: "row" }), "{name}", { name: later(fieldName, name) }),
    make("td", {}, valueOf(name, field), ...notes(name, field)),
    make("td", { class: "score" }, score(field), copyButton(() => field.value, "copy_value", { value: field.value })),
  );
  pointsAt(row, field);
  return field.repair ? [row, repair(name, field.repair)] : [row];
}

function valueOf(name, field) {
  const places = placesOf(field);
  if (!places.length) return local(make("span", { class: "value" }), name, field.value);
  return local(make("button", { type: "button", class: "link value", onclick: () => goToPlaces(places) }), name, field.value);
}

/** Make `node` say a value as people write it in the language of the page. */
const local = (node, name, value) => say(node, "{value}", { value: () => shownValue(name, value) });

/** How it was printed, where that says something else; what its check digits say; where it comes from. */
function notes(name, field) {
  const { value, text, valid, source, ambiguous } = field;
  const found = [];
  if (text && plain(text) && plain(text) !== plain(value) && plain(text) !== plain(shownValue(name, value))) found.push(quote(make("span", { class: "means" }), text));
  if (valid === false || (valid && kindOf(name) === "text")) {
    const words = say(make("span"), valid ? "valid" : "invalid");
    found.push(make("span", { class: `check ${valid ? "good" : "bad"}` }, icon(valid ? "check" : "cross"), words));
  }
  if (ambiguous) found.push(say(make("span", { class: "check bad" }), "ambiguous"));
  if (field.why) found.push(say(make("span", { class: "means reason" }), "{why}", { why: later(whyOf, field) }));
  if (source === "xml" || source === "qr") found.push(say(make("span", { class: "badge layer" }), `source_${source}`));
  return found;
}

const plain = (text) => text.replace(/[\s,€]+/g, "");

function repair(name, value) {
  const offer = say(make("strong"), "repair", { value: () => shownValue(name, value) });
  const copying = copyButton(() => value, "copy_value", { value });
  return make("tr", { class: "repair" }, make("td"), make("td", {}, offer), make("td", { class: "score" }, copying));
}

function list(name, found) {
  const columns = [...new Set(found.flatMap((row) => Object.keys(row)))];
  const head = columns.map((column) => say(make("th", { scope: "col" }), "{name}", { name: later(fieldName, column) }));
  const lines = found.slice(0, SHOWN).map((row) => {
    const line = make("tr", {}, ...columns.map((column) => cell(column, row[column])));
    pointsAt(line, ...Object.values(row));
    return line;
  });
  const rest = found.length > SHOWN ? [say(make("p", { class: "quiet" }), "more_in_files", { n: found.length - SHOWN })] : [];
  const title = say(make("h2"), "type_count", { type: later(fieldName, name), n: found.length });
  const table = make("table", { class: "grid" }, make("thead", {}, make("tr", {}, ...head)), make("tbody", {}, ...lines));
  say(table, "{name}", { name: later(fieldName, name) }, "aria-label");
  return make("section", { class: "card" }, title, make("div", { class: "scroll", tabindex: 0 }, table), ...rest);
}

function cell(column, field) {
  if (!field) return make("td");
  const isNumber = /^-?\d+(\.\d+)?$/.test(field.value);
  return local(make("td", { class: isNumber ? "number" : null }), column, field.value);
}

/** Light up the places of `fields` while the pointer is on `node`. */
function pointsAt(node, ...fields) {
  const places = fields.flatMap(placesOf);
  if (places.length) node.addEventListener("pointerenter", () => lightUp(places));
}

const placesOf = ({ page, boxes }) => (page === null || page === undefined ? [] : (boxes ?? []).map((box) => ({ page, box })));

const score = ({ score: sure }) =>
  Number.isFinite(sure) ? say(make("span", { class: "number" }), "{score:percent}", { score: sure }) : null;
