// The overview: kind of document, language, key sentences and phrases, and how all this was done.

import { find, make } from "./dom.js";
import { className, languageName, later, quote, say, seconds } from "./language.js";
import { goToPlaces } from "./pages.js";
import { STRINGS } from "./strings.js";

const CLASSES_SHOWN = 5;
const UNLIKELY = 0.01; // classes below are not worth a line
const STAGES = ["open", "read", "ocr", "understand", "total"];

export function waitForOverview() {
  find("panel-overview").replaceChildren(say(make("p", { class: "quiet" }), "wait_overview"));
}

export function showOverview(result) {
  const parts = [
    ...(result.text?.trim() === "" ? [say(make("p", { class: "notice" }), "nothing_read")] : []),
    classes(result.classes),
    languageOf(result.language),
    sentences(result.key_sentences ?? []),
    phrases(result.key_phrases ?? []),
    how(result),
    metadata(result.metadata ?? {}),
  ];
  const known = parts.filter(Boolean);
  if (!known.length) known.push(say(make("p", { class: "quiet" }), "not_searched"));
  find("panel-overview").replaceChildren(...known);
}

function part(key, ...children) {
  return make("section", { class: "card" }, say(make("h2"), key), ...children);
}

function classes(found) {
  if (!found?.prediction) return null;
  const rows = (found.predictions ?? []).filter(({ score }, index) => !index || score >= UNLIKELY).slice(0, CLASSES_SHOWN).map(({ label, score }) => {
    const bar = make("span", { class: "bar-fill" });
    bar.style.width = `${Math.max(0, Math.min(1, score)) * 100}%`;
    return make(
      "li",
      {},
      say(make("span"), "{name}", { name: later(className, label) }),
      make("span", { class: "bar-track", "aria-hidden": "true" }, bar),
      say(make("span", { class: "number" }), "{score:percent}", { score }),
    );
  });
  const name = say(make("p", { class: "headline" }), "{name}", { name: later(className, found.prediction) });
  return part("kind_of_document", name, make("ol", { class: "bars" }, ...rows));
}

function languageOf(found) {
  if (!found) return null;
  const name = make("p", { class: "headline" });
  if (found.code) say(name, "{name}", { name: later(languageName, found.code) });
  else say(name, "unknown_language");
  const score = Number.isFinite(found.score) ? say(make("p", { class: "quiet" }), "confidence", { score: found.score }) : null;
  return part("language", name, score);
}

function sentences(found) {
  if (!found.length) return null;
  const items = found.map(({ text, places }) => {
    if (!places?.length) return make("li", {}, quote(make("span"), text));
    return make("li", {}, quote(make("button", { type: "button", class: "link", onclick: () => goToPlaces(places) }), text));
  });
  return part("key_sentences", make("ul", { class: "sentences" }, ...items));
}

function phrases(found) {
  if (!found.length) return null;
  return part("key_phrases", make("ul", { class: "chips" }, ...found.map(({ text }) => quote(make("li"), text))));
}

function how(result) {
  const { timings = {}, usage = {} } = result;
  const facts = [
    ["device", result.device],
    ["model", result.model],
    ["ocr_pages", usage.ocr_pages],
    ["tokens", usage.total_tokens],
    ["chunks", result.chunks?.length],
    ["vector", result.vector?.length && [["dimensions", { n: result.vector.length }]]],
  ].filter(([, value]) => value !== undefined && value !== null);
  if (!facts.length) return null; // of a job that ended early
  const rows = facts.flatMap(([key, value]) => [say(make("dt"), key), valueOf(value)]);
  return part("how", make("dl", { class: "facts" }, ...rows), stages(timings));
}

function valueOf(value) {
  const node = make("dd");
  if (Array.isArray(value)) return say(node, ...value[0]);
  return typeof value === "number" ? say(node, "{n}", { n: value }) : quote(node, String(value));
}

function stages(timings) {
  const known = STAGES.filter((stage) => Number.isFinite(timings[`${stage}_s`]));
  if (!known.length) return null;
  const most = Math.max(...known.map((stage) => timings[`${stage}_s`]), 1e-9);
  const rows = known.map((stage) => {
    const spent = timings[`${stage}_s`];
    const bar = make("span", { class: "bar-fill" });
    bar.style.width = `${(spent / most) * 100}%`;
    return make(
      "li",
      {},
      say(make("span"), `stage_${stage}`),
      make("span", { class: "bar-track", "aria-hidden": "true" }, bar),
      say(make("span", { class: "number" }), "{spent}", { spent: later(seconds, spent) }),
    );
  });
  return make("div", {}, say(make("h3"), "timings"), make("ol", { class: "bars" }, ...rows));
}

function metadata(found) {
  const rows = Object.entries(found).filter(([, value]) => value).flatMap(([name, value]) => [
    `metadata_${name}` in STRINGS.en ? say(make("dt"), `metadata_${name}`) : quote(make("dt"), name),
    quote(make("dd"), String(value)),
  ]);
  return rows.length ? part("metadata", make("dl", { class: "facts" }, ...rows)) : null;
}
