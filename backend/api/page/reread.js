// Reading a document again in another way: offered where a scan gave nothing, or nothing sure.

import { Lost, Problem, call } from "./connection.js";
import { find, make } from "./dom.js";
import { languageName, later, say, t } from "./language.js";
import { announce, clear, put } from "./notices.js";

// Confidence of a page. Of eight French typescripts Tesseract gave four less, in which it found 71 to 84 % of the words, and
// four more, with 80 to 99 %; RapidOCR's good pages have 0.95.
const UNSURE = 0.85;
const AUTO = "auto";

/**
 * Offer another language and engine where the result is doubtful. `reread(wishes)` is called with the fields of the
 * next request; it is null where the page no longer has the file.
 */
export async function offerRereading(result, { signal, reread }) {
  const doubt = doubtAbout(result);
  if (!doubt) return;
  if (!reread) {
    offer(doubt, say(make("p"), "reread_without_file"));
    return;
  }
  const ocr = await engineFacts(signal);
  const engines = choicesOf(ocr.engines);
  if (engines.length) offer(doubt, form(result, ocr, engines, reread));
}

/** The engines and the usual languages of this service; none where it does not say: the result stands without an offer. */
async function engineFacts(signal) {
  try {
    return (await (await call("system", { signal })).json()).ocr;
  } catch (error) {
    if (error instanceof Problem || error instanceof Lost) return { engines: {}, languages: [] };
    throw error;
  }
}

/** What makes a reading doubtful, as a key of the strings and its values; null for nothing. */
function doubtAbout({ pages, text, entities }) {
  const scans = pages.filter((page) => page.source === "ocr");
  if (text?.trim() === "") return ["nothing_read", {}];
  const unsure = scans.filter((page) => Number.isFinite(page.confidence) && page.confidence < UNSURE);
  if (unsure.length) return ["reread_unsure", { n: unsure.length, score: mean(unsure.map((page) => page.confidence)) }];
  return scans.length && entities?.length === 0 ? ["no_entities", {}] : null;
}

const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;

/** The engines that differ for a reader: pytesseract is Tesseract as a program. */
function choicesOf(engines) {
  return Object.keys(engines).filter((name) => name !== "pytesseract" || !engines.tesseract);
}

function offer([key, values], ...children) {
  clear("reread");
  put("reread", { class: "notice", role: "group", "aria-labelledby": "reread-title" }, say(make("h2", { id: "reread-title" }), key, values), ...children);
  announce("reread_spoken", { what: t(key, values) });
}

function form(result, ocr, engines, reread) {
  const engine = make("select", { id: "reread-engine" }, ...[AUTO, ...engines].map(engineOption));
  const language = make("select", { id: "reread-language" });
  const fill = (chosen) => language.replaceChildren(...languageOptions(ocr, engine.value, chosen));
  engine.value = otherEngine(result, engines);
  fill(result.language?.code);
  engine.addEventListener("change", () => fill(language.value));
  const send = (event) => {
    event.preventDefault();
    reread({ engine: engine.value, language: language.value, ...sourceOf(result) });
  };
  return make(
    "form",
    { class: "reread", onsubmit: send },
    say(make("p"), "reread_how"),
    make("div", { class: "fields" }, field(language, "reread_language"), field(engine, "engine")),
    say(make("button", { class: "primary", id: "reread" }), "reread"),
  );
}

/** Pages that none recognised have a text layer, which is what failed. */
const sourceOf = ({ pages }) => (pages.some((page) => page.source === "ocr") ? {} : { source: "ocr" });

const field = (control, key) => make("div", { class: "field" }, say(make("label", { for: control.id }), key), control);

function engineOption(name) {
  const option = make("option", { value: name });
  const known = find("engine").querySelector(`option[value="${CSS.escape(name)}"]`);
  return name === AUTO ? say(option, "engine_auto") : say(option, "{name}", { name: known?.textContent ?? name });
}

/** The one engine that has not read this document yet, else the service's choice. */
function otherEngine({ pages }, engines) {
  const used = pages.map((page) => page.engine?.split(" ")[0]);
  const others = engines.filter((name) => !used.includes(name));
  return others.length === 1 ? others[0] : AUTO;
}

/** The languages that an engine reads, by name, after the service's usual ones. */
function languageOptions({ engines, languages: usual }, engine, chosen) {
  const codes = engine === AUTO ? Object.values(engines).flatMap((one) => one.languages) : engines[engine].languages;
  const sorted = [...new Set(codes)].sort((one, other) => languageName(one).localeCompare(languageName(other)));
  const names = () => usual.map(languageName).join(", ");
  return [
    say(make("option", { value: "" }), "usual_languages", { names }),
    ...sorted.map((code) =>
      say(make("option", { value: code, selected: code === chosen && !usual.includes(code) }), "{name}", { name: later(languageName, code) }),
    ),
  ];
}
