// What the files of a collection can be filtered by, and the reader's choices as the filter of a search.

const DATE = /^\d{4}-\d{2}-\d{2}($|T)/;
const FIRST = ["document_type", "language", "vendor_name", "vendor_tax_id", "invoice_date", "invoice_total"];

/** The values of a file by attribute: its own before those found in its text. */
export function valuesOf(file) {
  const own = Object.entries(file.attributes ?? {}).map(([name, value]) => [name, [value]]);
  return { ...file.found_attributes, ...Object.fromEntries(own) };
}

/**
 * The attributes of files: {name, kind, values, least, most}, those that people filter by first. `values` are
 * [value, files] by number of files; kind is number or date where every value is one, else choice.
 */
export function facetsOf(files) {
  const counts = new Map();
  for (const file of files) {
    for (const [name, values] of Object.entries(valuesOf(file))) {
      if (!counts.has(name)) counts.set(name, new Map());
      const of = counts.get(name);
      for (const value of new Set([values].flat())) of.set(value, (of.get(value) ?? 0) + 1);
    }
  }
  const facets = [...counts].filter(([, values]) => values.size).map(([name, values]) => facet(name, values));
  return facets.sort((one, other) => rank(one) - rank(other) || one.name.localeCompare(other.name));
}

function facet(name, counts) {
  const values = [...counts].sort((one, other) => other[1] - one[1] || (String(one[0]) < String(other[0]) ? -1 : 1));
  const kind = kindOf(values.map(([value]) => value));
  if (kind === "choice") return { name, kind, values };
  const sorted = values.map(([value]) => value).sort((one, other) => (one < other ? -1 : 1));
  return { name, kind, values, least: sorted[0], most: sorted.at(-1) };
}

function kindOf(values) {
  if (values.every((value) => typeof value === "number")) return "number";
  return values.every((value) => typeof value === "string" && DATE.test(value)) ? "date" : "choice";
}

function rank({ name }) {
  const index = FIRST.indexOf(name);
  return index < 0 ? FIRST.length : index;
}

/** Whether an attribute is shown without being asked for; `names` are those of all. */
export function isUsual({ name }, names) {
  if (FIRST.includes(name) || /_(date|total|name)$/.test(name)) return true;
  return (name === "date" && !names.includes("invoice_date")) || (name === "amount" && !names.includes("invoice_total"));
}

/**
 * The filter of a search, or null. `choices` is a Map from names to {kind, values} or {kind, from, to}; a choice
 * without values or ends is none.
 */
export function filterOf(choices) {
  const filters = [...choices].flatMap(([key, choice]) => comparisons(key, choice));
  if (!filters.length) return null;
  return filters.length === 1 ? filters[0] : { type: "and", filters };
}

function comparisons(key, { kind, values, from, to }) {
  if (kind === "choice") return values.length === 1 ? [{ type: "eq", key, value: values[0] }] : several(key, values);
  const [least, most] = inOrder(from, to);
  const upper = kind === "date" ? (most) => ({ type: "lt", key, value: dayAfter(most) }) : (most) => ({ type: "lte", key, value: most });
  return [...(least === null ? [] : [{ type: "gte", key, value: least }]), ...(most === null ? [] : [upper(most)])];
}

const several = (key, values) => (values.length ? [{ type: "in", key, value: [...values] }] : []);

/** A range as it was meant: people also write the larger end first. */
export function inOrder(from, to) {
  return from !== null && to !== null && from > to ? [to, from] : [from, to];
}

/** A day includes its hours, should the values have some. */
function dayAfter(day) {
  const next = new Date(`${day}T00:00:00Z`);
  next.setUTCDate(next.getUTCDate() + 1);
  return next.toISOString().slice(0, 10);
}
