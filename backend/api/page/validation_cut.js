// Which pages of a file are one document: cut by hand where it was cut wrongly, or joined.

import { make } from "./dom.js";
import { say } from "./language.js";

/** A form with the pages of each document, as 1-2; 3; `cut([{pages}])` is called with what is written instead. */
export function cutting(documents, cut) {
  const input = make("input", { id: "cut-pages", inputmode: "text", autocomplete: "off", spellcheck: "false", maxlength: 2000 });
  input.value = documents.map(({ pages }) => ranges(pages)).join("; ");
  const label = say(make("label", { for: input.id }), "cut_pages");
  const submit = say(make("button", { type: "submit" }), "cut");
  const form = make("form", { class: "cutting", novalidate: true }, label, make("div", { class: "cut-line" }, input, submit));
  form.addEventListener("keydown", (event) => event.stopPropagation()); // keys of values are not for it
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const parts = input.value.split(";").map((part) => part.replace(/\s/g, "")).filter(Boolean);
    if (parts.length) cut(parts.map((pages) => ({ pages })));
  });
  return make("details", {}, say(make("summary"), "documents_of_file"), form);
}

/** Page numbers as 1-3,7. */
function ranges(numbers) {
  const runs = [];
  for (const number of [...numbers].sort((one, other) => one - other)) {
    const last = runs.at(-1);
    if (last && number === last[1] + 1) last[1] = number;
    else runs.push([number, number]);
  }
  return runs.map(([from, to]) => (from === to ? String(from) : `${from}-${to}`)).join();
}
