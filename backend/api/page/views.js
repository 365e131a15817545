// Which view is shown, the document's or the library's, as the address says. The other one goes on behind it.

import { find, make } from "./dom.js";
import { quote, say, t } from "./language.js";

const LIBRARY = /^#library(=|$)/;
const TITLE = "FinancIA";

let documentHash = location.hash.startsWith("#job=") ? location.hash : "";
let documentTitle = TITLE;
let library = null; // its module, once it was opened: who reads one document never loads it

export const inLibrary = () => LIBRARY.test(location.hash);

/** Keep what the address and the title say of the document; they are shown now if the document is. */
export function nameDocument({ hash = documentHash, title = documentTitle }) {
  [documentHash, documentTitle] = [hash, title];
  find("to-document").href = hash || "#";
  if (inLibrary()) return;
  if (location.hash !== hash) history.replaceState(null, "", hash || location.pathname);
  quote(document.querySelector("title"), title);
}

/** Follow the address from now on; `resume` is called when it names another document. */
export function startViews(resume) {
  addEventListener("hashchange", () => {
    if (inLibrary()) showLibrary();
    else showDocument(resume);
  });
  if (inLibrary()) showLibrary();
  else mark(false);
}

/** Hand files to the library, if that is what is shown. */
export function addToLibrary(files) {
  if (inLibrary()) library?.add(files);
  return inLibrary();
}

function showDocument(resume) {
  library?.leave();
  mark(false);
  if (location.hash.startsWith("#job=") && location.hash !== documentHash) {
    documentHash = location.hash;
    resume();
  } else {
    nameDocument({});
  }
}

async function showLibrary() {
  mark(true);
  say(document.querySelector("title"), "{name} · FinancIA", { name: () => t("view_library") });
  try {
    library ??= await load();
  } catch (error) {
    if (!(error instanceof TypeError)) throw error; // what a module that cannot be fetched rejects with
    find("library-view").replaceChildren(say(make("p", { class: "notice", role: "alert" }), "library_failed"));
    return;
  }
  if (inLibrary()) library.enter();
}

async function load() {
  const style = make("link", { rel: "stylesheet", href: "page/library.css" });
  const styled = new Promise((resolve, reject) => {
    style.addEventListener("load", resolve, { once: true });
    style.addEventListener("error", () => reject(new TypeError("page/library.css")), { once: true });
  });
  document.head.append(style);
  const [module] = await Promise.all([import("./library.js"), styled]);
  return module;
}

function mark(libraryShown) {
  for (const audio of document.querySelectorAll("audio")) audio.pause(); // nobody sees where it could be stopped
  find("document-view").hidden = libraryShown;
  find("library-view").hidden = !libraryShown;
  for (const [id, current] of [["to-document", !libraryShown], ["to-library", libraryShown]]) {
    if (current) find(id).setAttribute("aria-current", "page");
    else find(id).removeAttribute("aria-current");
  }
}
