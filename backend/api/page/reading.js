// The text of a document, page by page, as it comes in.

import { copy } from "./clipboard.js";
import { find, icon, make } from "./dom.js";
import { quote, say } from "./language.js";

let texts = new Map(); // page number -> text
let whole = null; // of all pages, when the service has said it

export function resetText() {
  texts = new Map();
  whole = null;
  const button = make("button", { type: "button", id: "copy-text", onclick: () => copy(wholeText(), button) }, icon("copy"));
  button.append(say(make("span"), "copy_text"));
  find("panel-text").replaceChildren(make("div", { class: "text-tools" }, button), make("ol", { id: "texts", class: "texts" }));
}

/** The text of one page; pages may come in any order. */
export function putText(number, text) {
  const known = find("texts").querySelector(`li[data-number="${number}"] pre`);
  texts.set(number, text);
  if (known) {
    quote(known, text);
    return;
  }
  const heading = say(make("h2"), "page", { page: number });
  const item = make("li", { "data-number": number }, heading, quote(make("pre", { dir: "auto" }), text));
  const after = [...find("texts").children].reverse().find((one) => Number(one.dataset.number) < number);
  if (after) after.after(item);
  else find("texts").prepend(item);
}

export function setWholeText(text) {
  whole = text;
}

const wholeText = () => whole ?? [...texts].sort(([one], [other]) => one - other).map(([, text]) => text).join("\n\f");
