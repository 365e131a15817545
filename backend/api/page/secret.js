// The one dialog that asks for a secret: the service's key or a document's password.

import { find } from "./dom.js";
import { say } from "./language.js";

const LOCKED = ["password_required", "wrong_password"];

let pending = null;
const passwords = new Map(); // of stored documents by id; as long as the page is open
const refused = new Set(); // ids whose password nobody gave when it was asked for

/** What `attempt(password)` gives for the file `name`; its password is asked for as long as it is locked. */
export async function unlocked(name, attempt) {
  for (let password = null; ; ) {
    try {
      const stored = await attempt(password);
      if (password !== null) passwords.set(stored.id, password);
      return stored;
    } catch (error) {
      if (!isLocked(error)) throw error;
      password = await askSecret("password", error.code === "wrong_password", name);
      if (password === null) throw error;
    }
  }
}

export const keepPassword = (id, password) => passwords.set(id, password);

/**
 * What `attempt(headers)` gives at the path of a stored document called `name`, whose password is asked for where it is
 * not known: once, for all who need it; again where somebody `asks` for that.
 */
export async function opened(path, attempt, { name = "", asks = false } = {}) {
  const id = /^(?:documents|files)\/([^/]+)\//.exec(path)?.[1];
  if (asks) refused.delete(id);
  for (;;) {
    const known = passwords.get(id);
    try {
      return await attempt(known === undefined ? {} : { "X-Document-Password": encodeURIComponent(known) });
    } catch (error) {
      if (!id || !isLocked(error)) throw error;
      while (pending) await pending;
      if (passwords.get(id) !== known) continue; // given meanwhile
      const given = refused.has(id) ? null : await askSecret("password", error.code === "wrong_password", name);
      if (given === null) {
        refused.add(id);
        throw error;
      }
      passwords.set(id, given);
    }
  }
}

export const isLocked = (error) => LOCKED.includes(error.code);

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
