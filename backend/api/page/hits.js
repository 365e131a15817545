// The hits of a search as cards: file, page, the words around, and how well each fits.

import { find, make } from "./dom.js";
import { clock, quote, say } from "./language.js";
import { snippet } from "./snippets.js";

let open = () => {};

/** Connect the list; `show(index)` opens a hit. Arrows move between hits. */
export function startHits(show) {
  open = show;
  find("hits").addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    const buttons = [...find("hits").querySelectorAll(".hit-open")];
    const at = buttons.indexOf(document.activeElement);
    if (!step || at < 0) return;
    event.preventDefault();
    buttons[Math.max(0, Math.min(buttons.length - 1, at + step))].focus();
  });
}

export function showHits(hits) {
  find("hits").replaceChildren(...hits.map(card));
}

/** Say which hit is open; null for none. */
export function markHit(index) {
  for (const button of find("hits").querySelectorAll("[aria-current]")) button.removeAttribute("aria-current");
  if (index === null) return;
  const button = find("hits").querySelectorAll(".hit-open")[index];
  button.setAttribute("aria-current", "true");
  button.closest("li").scrollIntoView({ block: "nearest" });
}

export const focusHit = (index) => find("hits").querySelectorAll(".hit-open")[index]?.focus();

export const textOf = (hit) => (hit.content ?? []).map((part) => part.text ?? "").join("\n");

function card(hit, index) {
  const name = quote(make("span", { class: "hit-name" }), hit.filename);
  const page = placeOf(hit);
  const button = make("button", { type: "button", class: "link hit-open", onclick: () => open(index) }, name);
  const score = say(make("span", { class: "number hit-score" }), "score", { score: hit.score });
  const text = make("p", { class: "hit-text" }, ...snippet(textOf(hit), hit.highlights ?? []));
  const part = hit.part ? quote(make("span"), hit.part) : null;
  return make("li", { class: "hit" }, make("h2", {}, button), make("p", { class: "hit-place dots quiet" }, page, part, score), text);
}

/** Where a hit stands, or null for text without pages. */
function placeOf({ page, pages, highlights, start_s: start }) {
  if (Number.isFinite(start)) return say(make("span"), "hit_time", { time: clock(start) });
  if (!page) return null;
  const marked = (highlights ?? []).some((one) => one.boxes?.length); // then `page` is theirs
  const last = marked ? page : pages?.at(-1) ?? page;
  return last > page ? say(make("span"), "hit_pages", { first: page, last }) : say(make("span"), "page", { page });
}
