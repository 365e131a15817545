// The entities of a document as a table by type; each row leads to its mark on the page, and back.

import { copyButton } from "./clipboard.js";
import { find, icon, make } from "./dom.js";
import { later, quote, say, typeName } from "./language.js";
import { swatch } from "./marks.js";
import { goToEntity } from "./pages.js";
import { select } from "./tabs.js";

const COLUMNS = 3;
const SHOWN = 100; // rows of a type before "show more": a ledger has thousands of amounts

export function waitForEntities() {
  find("panel-entities").replaceChildren(say(make("p", { class: "quiet" }), "wait_entities"));
}

/** `entities` is undefined where nobody looked for them. */
export function showEntities(entities, coverage) {
  const panel = find("panel-entities");
  if (!entities) {
    panel.replaceChildren(say(make("p", { class: "quiet" }), "not_searched"));
    return;
  }
  const part = coverage < 1 ? say(make("p", { class: "quiet" }), "coverage", { part: coverage }) : null;
  if (!entities.length) {
    panel.replaceChildren(...[say(make("p", { class: "quiet" }), "no_entities"), part].filter(Boolean));
    return;
  }
  const columns = ["column_text", "column_page", "column_score"];
  const head = make("tr", {}, ...columns.map((key) => say(make("th", { scope: "col" }), key)));
  const groups = [...grouped(entities)].map(([type, found]) => group(type, found));
  const caption = say(make("caption", { class: "unseen" }), "entity_table");
  panel.replaceChildren(...[make("table", { class: "entity-table" }, caption, make("thead", {}, head), ...groups), part].filter(Boolean));
}

/** Back from a mark to its row. */
export function goBack(index) {
  select("entities");
  for (const more of find("panel-entities").querySelectorAll("[data-more]")) {
    if (!find(`entity-${index}`) && more.dataset.more.split(" ").includes(String(index))) more.click();
  }
  const row = find(`entity-${index}`);
  row?.scrollIntoView({ block: "nearest" });
  row?.focus({ preventScroll: true });
}

function grouped(entities) {
  const groups = new Map();
  entities.forEach((entity, index) => {
    if (!groups.has(entity.type)) groups.set(entity.type, []);
    groups.get(entity.type).push({ entity, index });
  });
  return groups;
}

function group(type, found) {
  const heading = make("th", { scope: "rowgroup", colspan: COLUMNS }, swatch(type));
  heading.append(say(make("span"), "type_count", { type: later(typeName, type), n: found.length }));
  const body = make("tbody", {}, make("tr", { class: "type-row" }, heading), ...found.slice(0, SHOWN).flatMap(rows));
  const rest = found.slice(SHOWN);
  if (rest.length) body.append(moreRow(rest));
  return body;
}

function moreRow(rest) {
  const line = make("tr", {});
  const open = () => line.replaceWith(...rest.flatMap(rows));
  const button = make("button", { type: "button", class: "link", onclick: open, "data-more": rest.map((one) => one.index).join(" ") });
  line.append(make("td", { colspan: COLUMNS }, say(button, "show_more", { n: rest.length })));
  return line;
}

function rows({ entity, index }) {
  const page = entity.places?.[0]?.page;
  const lead = page === undefined ? make("span") : make("button", { type: "button", class: "link", onclick: () => goToEntity(index, page) });
  lead.id = `entity-${index}`;
  const meaning = entity.value !== null && entity.value !== undefined ? String(entity.value) : entity.text;
  const means = meaning === entity.text ? null : say(make("span", { class: "means" }), "means", { value: meaning });
  const found = make(
    "tr",
    {},
    make("td", {}, quote(lead, entity.text), means, check(entity.valid)),
    page === undefined ? make("td") : say(make("td", { class: "number" }), "{page}", { page }),
    make("td", { class: "score" }, score(entity.score), copyButton(() => meaning, "copy_value", { value: meaning })),
  );
  return entity.repair ? [found, repair(entity.repair)] : [found];
}

function repair({ value }) {
  const offer = say(make("strong"), "repair", { value });
  const why = say(make("span", { class: "quiet" }), "repair_why");
  const copying = copyButton(() => value, "copy_value", { value });
  return make("tr", { class: "repair" }, make("td", { colspan: COLUMNS - 1 }, offer, why), make("td", { class: "score" }, copying));
}

function check(valid) {
  if (valid === true) return make("span", { class: "check good" }, icon("check"), say(make("span"), "valid"));
  if (valid === false) return make("span", { class: "check bad" }, icon("cross"), say(make("span"), "invalid"));
  return null;
}

const score = (value) => (Number.isFinite(value) ? say(make("span", { class: "number" }), "{score:percent}", { score: value }) : null);
