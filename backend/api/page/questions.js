// Questions of the library in a dialog: a name, or whether to delete. One dialog, made for each question.

import { make } from "./dom.js";
import { say, t } from "./language.js";

/** Ask for a name; returns it, or null. */
export async function askName(title, label, proposed) {
  const input = make("input", { id: "question-name", required: true, maxlength: 200, autocomplete: "off" });
  input.value = proposed;
  const field = make("div", { class: "field" }, say(make("label", { for: input.id }), label), input);
  const given = await shown([title, {}], [field], "create", () => Boolean(input.value.trim()));
  return given ? input.value.trim() : null;
}

/** Ask whether to delete; returns null for no, else whether `option` was ticked too. */
export async function askDelete([title, values], text, option, ticked) {
  const box = make("input", { type: "checkbox", id: "question-option" });
  box.checked = ticked;
  const label = make("label", { class: "toggle" }, box, say(make("span"), ...option));
  const given = await shown([title, values], [say(make("p", { id: "question-text" }), ...text), label], "delete", () => true);
  return given ? box.checked : null;
}

function shown(title, content, action, isComplete) {
  const cancel = say(make("button", { type: "button", onclick: () => dialog.close() }), "cancel");
  const submit = say(make("button", { type: "submit", class: action === "delete" ? "primary danger" : "primary" }), action);
  const answer = (event) => {
    event.preventDefault();
    if (isComplete()) dialog.close("given");
  };
  const heading = say(make("h2", { id: "question-title" }), ...title);
  const actions = make("div", { class: "dialog-actions" }, cancel, submit);
  const form = make("form", { method: "dialog", onsubmit: answer }, heading, ...content, actions);
  const described = content.some((node) => node.id === "question-text") ? "question-text" : null;
  const dialog = make("dialog", { id: "question", "aria-labelledby": "question-title", "aria-describedby": described }, form);
  document.body.append(dialog);
  dialog.showModal();
  const input = dialog.querySelector("input:not([type=checkbox])");
  if (input) input.select();
  else cancel.focus();
  return new Promise((resolve) => {
    dialog.addEventListener(
      "close",
      () => {
        dialog.remove();
        resolve(dialog.returnValue === "given");
      },
      { once: true },
    );
  });
}

/** The name proposed for a collection, in the language of the page. */
export const proposedName = () => t("store_proposed");
