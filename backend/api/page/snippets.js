// Text with the words of a query marked. Offsets count Unicode code points, as the service's do.

import { make } from "./dom.js";

const WIDTH = 240; // code points of a snippet
const LEAD = 60; // of them before the first marked word

/** The part of a text with the most of the query's words, at whole words, with what was left out shown by "…". */
export function snippet(text, highlights) {
  const letters = [...text];
  const [start, end] = window_(letters, highlights);
  const inside = highlights.filter((one) => one.start >= start && one.end <= end);
  const nodes = marked(letters.slice(start, end), inside.map((one) => ({ start: one.start - start, end: one.end - start })));
  return [...(start > 0 ? ["… "] : []), ...nodes, ...(end < letters.length ? [" …"] : [])];
}

/** Text nodes and <mark>s; `letters` is a text or its code points. Stretches that overlap are one. */
export function marked(letters, highlights) {
  const points = [...letters].map((one) => (one === "\f" ? "\n" : one)); // a form feed is drawn as a box
  const nodes = [];
  let at = 0;
  for (const { start, end } of [...highlights].sort((one, other) => one.start - other.start)) {
    if (end <= at) continue;
    const from = Math.max(at, start);
    nodes.push(points.slice(at, from).join(""), make("mark", {}, points.slice(from, end).join("")));
    at = end;
  }
  nodes.push(points.slice(at).join(""));
  return nodes.filter((node) => node !== "");
}

function window_(letters, highlights) {
  if (letters.length <= WIDTH) return [0, letters.length];
  const starts = highlights.map((one) => Math.max(0, one.start - LEAD));
  const count = (start) => highlights.filter((one) => one.start >= start && one.end <= start + WIDTH).length;
  const best = starts.reduce((most, start) => (count(start) > count(most) ? start : most), starts[0] ?? 0);
  const first = Math.min(best, letters.length - WIDTH);
  return [first && nextGap(letters, first, 1, LEAD), nextGap(letters, Math.min(letters.length, first + WIDTH), -1, LEAD)];
}

/** The nearest edge of a word within `most` steps, else the place itself. */
function nextGap(letters, place, step, most) {
  if (place === 0 || place === letters.length) return place;
  for (let at = place; Math.abs(at - place) < most && at > 0 && at < letters.length; at += step) {
    const edge = step > 0 ? letters[at - 1] : letters[at];
    if (/\s/.test(edge)) return at;
  }
  return place;
}
