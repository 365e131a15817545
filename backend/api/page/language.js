// The language of the page: what a node says is bound to a key, so that a switch says it all again.

import { CLASSES, FIELDS, STRINGS, TYPES } from "./strings.js";

const STORED = "language";
const bound = new WeakMap(); // node -> Map(attribute, or "" for its text -> [key, values])
const ATTRIBUTES = ["aria-label", "title", "placeholder", "alt"];
let current = "en";

export const language = () => current;

/** The language that the reader chose, or the first of the browser's that there is. */
export function preferred() {
  const wished = [localStorage.getItem(STORED), ...navigator.languages].filter(Boolean);
  return wished.map((one) => one.slice(0, 2).toLowerCase()).find((one) => one in STRINGS) ?? "en";
}

/** Say everything in `wished`; `keep` it for the next visit. */
export function speak(wished, { keep = false } = {}) {
  current = wished;
  if (keep) localStorage.setItem(STORED, wished);
  document.documentElement.lang = wished;
  for (const node of document.querySelectorAll("[data-said]")) repeat(node);
}

/** Bind the keys that the HTML carries in data-t, data-t-aria-label and so on. */
export function bindStatic() {
  const selector = ["[data-t]", ...ATTRIBUTES.map((one) => `[data-t-${one}]`)].join();
  for (const node of document.querySelectorAll(selector)) {
    if (node.dataset.t) say(node, node.dataset.t);
    for (const one of ATTRIBUTES) {
      const key = node.getAttribute(`data-t-${one}`);
      if (key) say(node, key, {}, one);
    }
  }
}

/** Make `node` say `key` with `values`, now and after every switch of language. Returns the node. */
export function say(node, key, values = {}, attribute = "") {
  if (!bound.has(node)) bound.set(node, new Map());
  bound.get(node).set(attribute, [key, values]);
  node.dataset.said = "";
  write(node, attribute, t(key, values));
  return node;
}

/** Make `node` say `text` as it is, in no language of ours. */
export function quote(node, text) {
  bound.get(node)?.delete("");
  node.textContent = text;
  return node;
}

function repeat(node) {
  for (const [attribute, [key, values]] of bound.get(node) ?? []) write(node, attribute, t(key, values));
}

function write(node, attribute, text) {
  if (attribute) node.setAttribute(attribute, text);
  else node.textContent = text;
}

/** The words of `key` in the current language. A value may be a function, which is asked at each switch. */
export function t(key, values = {}) {
  const words = STRINGS[current][key] ?? key;
  return words.replace(/\{(\w+)(?::(\w+))?(?:\|([^|}]*)\|([^|}]*))?\}/g, (_, name, form, one, many) => {
    const value = typeof values[name] === "function" ? values[name]() : values[name];
    if (one !== undefined) return new Intl.PluralRules(current).select(Number(value)) === "one" ? one : many;
    return written(value, form);
  });
}

function written(value, form) {
  if (form === "percent") return number(value, { style: "percent" });
  if (form === "seconds") return seconds(value);
  if (form === "bytes") return bytes(value);
  return typeof value === "number" ? number(value) : String(value);
}

const number = (value, options) => new Intl.NumberFormat(current, options).format(value);

export function seconds(value) {
  const small = value < 1;
  const shown = small ? value * 1000 : value;
  const options = { style: "unit", unit: small ? "millisecond" : "second", maximumFractionDigits: value < 10 && !small ? 1 : 0 };
  return number(shown, options);
}

/** Whole seconds, and minutes from the first one on: for a time that is still running. */
export function duration(value) {
  const unit = (count, name) => number(count, { style: "unit", unit: name });
  const rest = Math.floor(value) % 60;
  const minutes = Math.floor(value / 60);
  return minutes ? `${unit(minutes, "minute")} ${unit(rest, "second")}` : unit(rest, "second");
}

/** A place in a recording: 1:05, or 1:02:03 from the first hour on. */
export function clock(value) {
  const whole = Math.floor(value);
  const [hours, minutes, rest] = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60, whole % 60];
  const two = (count) => String(count).padStart(2, "0");
  return hours ? `${hours}:${two(minutes)}:${two(rest)}` : `${minutes}:${two(rest)}`;
}

function bytes(value) {
  const units = ["byte", "kilobyte", "megabyte", "gigabyte"];
  const step = Math.min(units.length - 1, Math.floor(Math.log10(Math.max(1, value)) / 3));
  return number(value / 1000 ** step, { style: "unit", unit: units[step], unitDisplay: "short", maximumFractionDigits: 1 });
}

/** The name of a human language from its ISO 639-1 code. */
export function languageName(code) {
  try {
    const name = new Intl.DisplayNames([current], { type: "language" }).of(code);
    return name.charAt(0).toLocaleUpperCase(current) + name.slice(1);
  } catch (error) {
    if (error instanceof RangeError) return code; // not a code of that standard
    throw error;
  }
}

/** The name of a type of entity. */
export const typeName = (type) => TYPES[current][type] ?? type.replaceAll("_", " ");

/** The name of a field, or of a column of its list. */
export const fieldName = (name) => FIELDS[current][name] ?? name;

/** An equation between fields in the words of the page. */
export function equationIn(equation) {
  return equation.replace(/(sum of )?([A-Z][A-Za-z]+)| x /g, (sign, sum, name) => {
    if (!name) return " × ";
    return sum ? t("sum_of_list", { name: fieldName(name) }) : fieldName(name);
  });
}

/** The name of a class of documents. */
export const className = (label) => CLASSES[current][label] ?? label.replaceAll("_", " ");

/** Values for `say` that are asked again at each switch. */
export const later = (name, value) => () => name(value);
