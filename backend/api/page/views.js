// Which view is shown, as the address says: the document's, the library's, or the ledger with its stored documents. The
// others go on behind it.

import { find, make } from "./dom.js";
import { quote, say, t } from "./language.js";

const TITLE = "FinancIA";
// Views that are loaded when they are first opened: who reads one document never loads them.
const VIEWS = {
  library: { hash: /^#library(=|$)/, style: "page/library.css", load: () => import("./library.js"), title: "view_library", failed: "library_failed" },
  ledger: { hash: /^#(ledger$|document=[\w-]+:)/, style: "page/ledger.css", load: () => import("./ledger.js"), title: "view_ledger", failed: "ledger_failed" },
};

const modules = {}; // those that were loaded, by view
const DOCUMENT = /^#(job=|document=[\w-]+$)/; // one that is read, or was

let documentHash = DOCUMENT.test(location.hash) ? location.hash : "";
let documentTitle = TITLE;

const viewNow = () => Object.keys(VIEWS).find((name) => VIEWS[name].hash.test(location.hash)) ?? "document";

/** Keep what the address and the title say of the document; they are shown now if the document is. */
export function nameDocument({ hash = documentHash, title = documentTitle }) {
  [documentHash, documentTitle] = [hash, title];
  find("to-document").href = hash || "#";
  if (viewNow() !== "document") return;
  if (location.hash !== hash) history.replaceState(null, "", hash || location.pathname);
  quote(document.querySelector("title"), title);
}

/** Follow the address from now on; `resume` is called when it names another document. */
export function startViews(resume) {
  addEventListener("hashchange", () => {
    if (viewNow() === "document") showDocument(resume);
    else show(viewNow());
  });
  if (viewNow() === "document") mark("document");
  else show(viewNow());
}

/** Hand files to the collection that is shown, or to the queue; one that is to be shown at once is left to the caller. */
export function addToView(files) {
  const name = viewNow();
  if (name === "document" && files.length === 1) return false;
  (name === "library" ? loaded(name) : import("./queue.js")).then((module) => module?.add(files));
  return true;
}

function leaveOthers(shown) {
  for (const [name, module] of Object.entries(modules)) {
    if (name !== shown) module.then((one) => one.leave(), () => {}); // one that could not be loaded has told so
  }
}

function showDocument(resume) {
  leaveOthers("document");
  mark("document");
  if (DOCUMENT.test(location.hash) && location.hash !== documentHash) {
    documentHash = location.hash;
    resume();
  } else {
    nameDocument({});
  }
}

async function show(name) {
  leaveOthers(name);
  mark(name);
  say(document.querySelector("title"), "{name} · FinancIA", { name: () => t(VIEWS[name].title) });
  const module = await loaded(name);
  if (viewNow() === name) module?.enter();
}

/** The module of a view; null where it cannot be fetched, which is told. */
async function loaded(name) {
  try {
    return await (modules[name] ??= load(VIEWS[name]));
  } catch (error) {
    delete modules[name];
    if (!(error instanceof TypeError)) throw error; // what a module that cannot be fetched rejects with
    find(`${name}-view`).replaceChildren(say(make("p", { class: "notice", role: "alert" }), VIEWS[name].failed));
    return null;
  }
}

async function load(view) {
  const style = make("link", { rel: "stylesheet", href: view.style });
  const styled = new Promise((resolve, reject) => {
    style.addEventListener("load", resolve, { once: true });
    style.addEventListener("error", () => reject(new TypeError(view.style)), { once: true });
  });
  document.head.append(style);
  const [module] = await Promise.all([view.load(), styled]);
  return module;
}

function mark(shown) {
  for (const audio of document.querySelectorAll("audio")) audio.pause(); // nobody sees where it could be stopped
  for (const name of ["document", "library", "ledger"]) {
    find(`${name}-view`).hidden = name !== shown;
    if (name === shown) find(`to-${name}`).setAttribute("aria-current", "page");
    else find(`to-${name}`).removeAttribute("aria-current");
  }
}
