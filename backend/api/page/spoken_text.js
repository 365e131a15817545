// What is said, as text that leads to its seconds: a time to press before each passage, and words to click.

import { make } from "./dom.js";
import { clock, languageName, later, say } from "./language.js";

const UNSURE = 0.65; // words below are marked: of the speech benchmark's clips half of the wrong ones, and three in five marked are wrong

/** A passage {start, language, text, words}, with the language named where `tellsLanguage`; `playFrom(seconds)` is called. */
export function passage({ start, language, text, words }, { playFrom, tellsLanguage = false }) {
  const said = make("p", { lang: language, dir: "auto" });
  const placed = put(said, text, words);
  said.addEventListener("click", ({ target }) => {
    if (!getSelection().isCollapsed) return; // the reader marks text to copy it
    const word = placed.find(({ node }) => node === target);
    playFrom(word ? word.start : start);
  });
  const badge = tellsLanguage && language ? say(make("span", { class: "badge layer" }), "{name}", { name: later(languageName, language) }) : null;
  const node = make("li", { class: "spoken-passage" }, timeButton(start, playFrom), make("div", {}, badge, said));
  return { node, words: placed };
}

export function timeButton(start, playFrom) {
  const button = make("button", { type: "button", class: "plain time number", onclick: () => playFrom(start) }, clock(start));
  return say(button, "play_from", { time: clock(start) }, "aria-label");
}

/** Put the words into the text where they stand in it; returns them with their nodes. */
function put(node, text, words) {
  const placed = [];
  let at = 0;
  for (const { word, start, end, confidence, isFound } of words) {
    const from = text.indexOf(word, at);
    if (from < 0) continue;
    const unsure = Number.isFinite(confidence) && confidence < UNSURE;
    const span = make("span", { class: ["word", unsure && "unsure", isFound && "found"].filter(Boolean).join(" ") }, word);
    node.append(text.slice(at, from), span);
    placed.push({ start, end, node: span });
    at = from + word.length;
  }
  node.append(text.slice(at));
  return placed;
}
