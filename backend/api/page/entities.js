// The entities of a document as a table by type; each row leads to its mark on the page, and back.

import { copyButton } from "./clipboard.js";
import { find, icon, make } from "./dom.js";
import { later, quote, say, typeName } from "./language.js";
import { localAmount, localDate } from "./local_values.js";
import { swatch } from "./marks.js";
import { goToEntity } from "./pages.js";
import { select } from "./tabs.js";

const COLUMNS = 3;
const SHOWN = 8; // rows of a type before "show more": what else there is stays in sight

let firsts = new Map(); // index of an entity -> that of the first of the same type and value, which has the row

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
  const first = firsts.get(index) ?? index;
  for (const more of find("panel-entities").querySelectorAll("[data-more]")) {
    if (more.dataset.more.split(" ").includes(String(first))) more.click();
  }
  const row = find(`entity-${first}`);
  row?.scrollIntoView({ block: "nearest" });
  row?.focus({ preventScroll: true });
}

/** Entities by type, each value once with all of its mentions. */
function grouped(entities) {
  const groups = new Map();
  firsts = new Map();
  entities.forEach((entity, index) => {
    if (!groups.has(entity.type)) groups.set(entity.type, new Map());
    const values = groups.get(entity.type);
    const value = meaningOf(entity);
    if (!values.has(value)) values.set(value, { entity, index, mentions: [] });
    values.get(value).mentions.push({ index, page: entity.places?.[0]?.page });
    firsts.set(index, values.get(value).index);
  });
  return new Map([...groups].map(([type, values]) => [type, [...values.values()]]));
}

const meaningOf = ({ value, text }) => (value !== null && value !== undefined ? String(value) : text);

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

function rows({ entity, index, mentions }) {
  const placed = mentions.filter(({ page }) => page !== undefined);
  let gone = 0; // each click leads to the next mention
  const go = () => {
    const { index: to, page } = placed[gone++ % placed.length];
    goToEntity(to, page);
  };
  const lead = placed.length ? make("button", { type: "button", class: "link", onclick: go }) : make("span");
  lead.id = `entity-${index}`;
  const meaning = meaningOf(entity);
  const often = mentions.length > 1 ? [" ", say(make("span", { class: "quiet" }), "times", { n: mentions.length })] : [];
  const pages = [...new Set(placed.map(({ page }) => page))];
  const shown = shownMeaning(entity.type, meaning);
  const means = says(entity.text, meaning) || says(entity.text, shown()) ? null : say(make("span", { class: "means" }), "means", { value: shown });
  const found = make(
    "tr",
    {},
    make("td", {}, quote(lead, entity.text), ...often, means, check(entity)),
    quote(make("td", { class: "number" }), pages.length > 3 ? `${pages.slice(0, 3).join(", ")}…` : pages.join(", ")),
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

const says = (text, value) => text === value || text.replace(/\s/g, "").includes(value.replace(/\s?[A-Z]{3}$/, ""));

/** A date or an amount as people write it in the language of the page; asked again at each switch. */
function shownMeaning(type, meaning) {
  if (type === "DATE") return later(localDate, meaning);
  const [, amount, currency] = /^(-?\d+(?:\.\d+)?) ([A-Z]{3})$/.exec(meaning) ?? [];
  return amount ? () => `${localAmount(amount)} ${currency}` : () => meaning;
}

const PLAIN = ["DATE", "MONEY", "PERCENT"]; // that they can be read is all that their check says

function check({ type, valid }) {
  if (valid === true && PLAIN.includes(type)) return null;
  if (valid === true) return make("span", { class: "check good" }, icon("check"), say(make("span"), "valid"));
  if (valid === false) return make("span", { class: "check bad" }, icon("cross"), say(make("span"), "invalid"));
  return null;
}

const score = (value) => (Number.isFinite(value) ? say(make("span", { class: "number" }), "{score:percent}", { score: value }) : null);
