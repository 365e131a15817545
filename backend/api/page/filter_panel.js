// The panel of filters and the chips of those that are set.

import { facetsOf, filterOf, inOrder, isUsual } from "./facets.js";
import { find, icon, make } from "./dom.js";
import { className, fieldName, language, languageName, later, say, t, typeName } from "./language.js";

const TICKED_AT_MOST = 8; // values with a checkbox each; more are a list to choose from

let choices = new Map(); // name of an attribute -> {kind, values} or {kind, from, to}
let facets = [];
let asked = new Set(); // attributes that the reader wants to filter by besides the usual ones
let onChange = () => {};

/** Begin without filters; `changed()` is called when the reader changes one. */
export function resetFilters(changed) {
  [choices, facets, asked, onChange] = [new Map(), [], new Set(), changed];
  drawChips();
  find("filters").replaceChildren(say(make("p", { class: "quiet" }), "filters_none"));
}

export const filter = () => filterOf(choices);

/** Offer what these files can be filtered by; `partly` when there are more files than were looked at. */
export function offerFilters(files, partly) {
  facets = facetsOf(files);
  if (find("filters").contains(document.activeElement)) return; // not under the reader's hands
  drawPanel(partly ? files.length : null);
}

function drawPanel(looked = null) {
  if (!facets.length) {
    find("filters").replaceChildren(say(make("p", { class: "quiet" }), "filters_none"));
    return;
  }
  const shown = shownFacets();
  const hidden = facets.filter((facet) => !shown.includes(facet));
  const note = looked === null ? null : say(make("p", { class: "quiet" }), "filters_partly", { n: looked });
  const groups = make("div", { class: "filter-groups" }, ...shown.map(group), hidden.length ? more(hidden) : null);
  find("filters").replaceChildren(...[groups, note].filter(Boolean));
}

function shownFacets() {
  const names = facets.map((facet) => facet.name);
  return facets.filter((facet) => isUsual(facet, names) || asked.has(facet.name) || choices.has(facet.name));
}

function group(facet) {
  const legend = say(make("legend"), "{name}", { name: later(attributeName, facet.name) });
  const content = facet.kind === "choice" ? valueInputs(facet) : rangeInputs(facet);
  return make("fieldset", { class: "filter" }, legend, ...content);
}

function valueInputs(facet) {
  if (facet.values.length > TICKED_AT_MOST) return [valueList(facet)];
  return facet.values.map(([value, files]) => {
    const box = make("input", { type: "checkbox" });
    box.checked = Boolean(choices.get(facet.name)?.values.includes(value));
    box.addEventListener("change", () => toggle(facet, value, box.checked));
    const name = say(make("span", { class: "filter-value" }), "{name}", { name: later((one) => valueName(facet.name, one), value) });
    return make("label", {}, box, name, say(make("span", { class: "quiet number" }), "{n}", { n: files }));
  });
}

function valueList(facet) {
  const options = facet.values.map(([value, files], index) =>
    say(make("option", { value: index }), "{name} ({n})", { name: later((one) => valueName(facet.name, one), value), n: files }),
  );
  const list = make("select", {}, say(make("option", { value: "" }), "filter_add"), ...options);
  say(list, "{name}", { name: later(attributeName, facet.name) }, "aria-label");
  list.addEventListener("change", () => {
    if (list.value === "") return;
    toggle(facet, facet.values[Number(list.value)][0], true);
    list.value = "";
  });
  return list;
}

function rangeInputs(facet) {
  const { name, kind, least, most } = facet;
  const type = kind === "date" ? { type: "date", min: null } : { type: "number", step: "any", inputmode: "decimal" };
  const inputs = ["from", "to"].map((end) => {
    const input = make("input", { ...type, id: `filter-${facets.indexOf(facet)}-${end}`, placeholder: end === "from" ? least : most });
    input.value = choices.get(name)?.[end] ?? "";
    return input;
  });
  const read = (input) => (input.value === "" ? null : kind === "date" ? input.value : input.valueAsNumber);
  const change = () => {
    const [from, to] = inOrder(...inputs.map(read));
    set(name, from === null && to === null ? null : { kind, from, to });
  };
  for (const input of inputs) input.addEventListener("change", change);
  const labels = inputs.map((input, index) => say(make("label", { for: input.id }), index ? "filter_to" : "filter_from"));
  return [make("div", { class: "range" }, labels[0], inputs[0], labels[1], inputs[1])];
}

function more(hidden) {
  const options = hidden.map(({ name }) => say(make("option", { value: name }), "{name}", { name: later(attributeName, name) }));
  const list = make("select", { id: "filter-more" }, say(make("option", { value: "" }), "filter_choose"), ...options);
  list.addEventListener("change", () => {
    asked.add(list.value);
    const { value } = list;
    drawPanel();
    const index = shownFacets().findIndex((one) => one.name === value);
    find("filters").querySelectorAll("fieldset")[index]?.querySelector("input, select")?.focus();
  });
  return make("div", { class: "filter" }, say(make("label", { for: "filter-more" }), "filter_more"), list);
}

function toggle(facet, value, ticked) {
  const values = (choices.get(facet.name)?.values ?? []).filter((one) => one !== value);
  if (ticked) values.push(value);
  set(facet.name, values.length ? { kind: "choice", values } : null);
}

function set(name, choice) {
  if (choice) choices.set(name, choice);
  else choices.delete(name);
  drawChips();
  onChange();
}

function drawChips() {
  const chips = [...choices].flatMap(([name, choice]) => chipsOf(name, choice));
  const all = say(make("button", { type: "button", class: "link", onclick: removeAll }), "filter_remove_all");
  find("filter-chips").replaceChildren(...chips, ...(chips.length > 1 ? [make("li", {}, all)] : []));
  find("filter-chips").hidden = !chips.length;
}

function chipsOf(name, choice) {
  if (choice.kind === "choice") {
    return choice.values.map((value) => chip(name, [later((one) => valueName(name, one), value)], () => without(name, value)));
  }
  const { from, to } = choice;
  const key = from === null ? "range_to" : to === null ? "range_from" : "range";
  return [chip(name, [() => t(key, { from: shownEnd(from), to: shownEnd(to) })], () => set(name, null))];
}

const shownEnd = (value) => (typeof value === "number" ? new Intl.NumberFormat(language()).format(value) : value ?? "");

function chip(name, [value], remove) {
  const onclick = (event) => {
    const index = [...find("filter-chips").querySelectorAll("button")].indexOf(event.currentTarget);
    remove();
    drawPanel();
    const left = find("filter-chips").querySelectorAll("button");
    (left[Math.min(index, left.length - 1)] ?? find("query")).focus();
  };
  const values = { name: later(attributeName, name), value };
  const button = say(make("button", { type: "button", class: "chip", onclick }), "filter_remove", values, "aria-label");
  button.append(say(make("span"), "{name}: {value}", values), icon("cross"));
  return make("li", {}, button);
}

const without = (name, value) => toggle({ name }, value, false);

function removeAll() {
  choices.clear();
  drawChips();
  drawPanel();
  find("query").focus();
  onChange();
}

// Attributes that are named otherwise than the fields and the types of entities that they hold.
const ATTRIBUTES = { document_type: "kind_of_document", language: "language", pages: "pages_wished", date: "any_date", amount: "any_amount" };
const ENTITIES = { person: "PER", organization: "ORG", location: "LOC" };

/** The name of an attribute: a string of ours, a field of documents ("vendor_name" is VendorName), a type of entity, or its own. */
function attributeName(name) {
  const key = ATTRIBUTES[name];
  if (key) return t(key);
  const field = name.replace(/(^|_)([a-z])/g, (_, __, letter) => letter.toUpperCase());
  const known = fieldName(field);
  if (known !== field) return known;
  const type = ENTITIES[name] ?? name.toUpperCase();
  const entity = typeName(type);
  return entity === type.replaceAll("_", " ") ? name.replaceAll("_", " ") : entity;
}

function valueName(name, value) {
  if (name === "document_type") return className(String(value));
  if (name === "language") return languageName(String(value));
  return typeof value === "number" ? shownEnd(value) : String(value);
}
