// The one dialog that asks for a secret: the service's key or a document's password.

import { find } from "./dom.js";
import { say } from "./language.js";

let pending = null;

/** Ask for `kind` ("key", or the "password" of the document `name`); `wrong` says that the last one was refused. Returns it, or null. */
export async function askSecret(kind, wrong, name = "") {
  while (pending) await pending;
  pending = shown(kind, wrong, name).finally(() => (pending = null));
  return pending;
}

function shown(kind, wrong, name) {
  const dialog = find("secret");
  const input = find("secret-value");
  say(find("secret-title"), `${kind}_title`, { name });
  say(find("secret-why"), wrong ? `${kind}_wrong` : `${kind}_why`).classList.toggle("bad", wrong);
  say(find("secret-label"), `${kind}_label`);
  input.value = "";
  dialog.returnValue = "";
  dialog.showModal();
  input.focus();
  return new Promise((resolve) => {
    const submit = (event) => {
      event.preventDefault();
      if (input.value) dialog.close("given");
    };
    const form = dialog.querySelector("form");
    form.addEventListener("submit", submit);
    dialog.addEventListener(
      "close",
      () => {
        form.removeEventListener("submit", submit);
        const given = dialog.returnValue === "given" ? input.value : null;
        input.value = "";
        resolve(given);
      },
      { once: true },
    );
  });
}

find("secret-cancel").addEventListener("click", () => find("secret").close(""));
