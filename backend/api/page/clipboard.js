// Copying text, also where the page came over plain HTTP from another machine and has no clipboard of its own.

import { icon, make } from "./dom.js";
import { say } from "./language.js";
import { announce } from "./notices.js";

/** A button that copies what `text()` gives. */
export function copyButton(text, key, values = {}) {
  const button = make("button", { type: "button", class: "plain copy", onclick: () => copy(text(), button) }, icon("copy"));
  say(button, key, values, "aria-label");
  return say(button, "copy", {}, "title");
}

export async function copy(text, button) {
  const done = (await byClipboard(text)) || bySelection(text);
  announce(done ? "copied" : "copy_failed");
  button.classList.toggle("done", done);
  setTimeout(() => button.classList.remove("done"), 1500);
}

async function byClipboard(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch (error) {
    if (error instanceof TypeError || error instanceof DOMException) return false; // not there, or not allowed
    throw error;
  }
}

function bySelection(text) {
  const before = document.activeElement;
  const field = make("textarea", { class: "unseen", readonly: true });
  field.value = text;
  document.body.append(field);
  field.select();
  const done = document.execCommand("copy");
  field.remove();
  before?.focus();
  return done;
}
