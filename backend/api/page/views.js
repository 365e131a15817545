// Which view is shown, as the address says: documents (those that are stored, one collection of them, or the one that is
// open) or the ledger. The others go on behind it.

import { find, make } from "./dom.js";
import { quote, say, t } from "./language.js";
import { showRecent } from "./recent.js";

const TITLE = "FinancIA";
// Views that are loaded when they are first opened: who reads one document never loads them.
const VIEWS = {
  library: { hash: /^#library(=|$)/, style: "page/library.css", load: () => import("./library.js"), title: "view_documents", failed: "library_failed" },
  ledger: { hash: /^#(ledger$|document=[\w-]+:)/, style: "page/ledger.css", load: () => import("./ledger.js"), title: "view_ledger", failed: "ledger_failed" },
};

const modules = {}; // those that were loaded, by view
const DOCUMENT = /^#(job=|document=[\w-]+$)/; // one that is read, or was

let documentHash = DOCUMENT.test(location.hash) ? location.hash : "";
let documentTitle = TITLE;

// Whether a document is open, behind a list or not, and whether wishes for another try stand below it.
const reading = { isOpen: false, wishes: false };

const viewNow = () => Object.keys(VIEWS).find((name) => VIEWS[name].hash.test(location.hash)) ?? (location.hash === "#documents" ? "list" : "document");

/** Keep what the address and the title say of the document; they are shown now if the document is. */
export function nameDocument({ hash = documentHash, title = documentTitle }) {
  [documentHash, documentTitle] = [hash, title];
  if (viewNow() !== "document") return;
  if (location.hash !== hash) history.replaceState(null, "", hash || location.pathname);
  quote(document.querySelector("title"), title);
}

/** Tell of the document that is open; what is left out stays. */
export function showReading(changes) {
  Object.assign(reading, changes);
  arrange(viewNow());
}

/** Go from a list to a document that is to be read. */
export function leaveList() {
  if (viewNow() === "document") return;
  documentHash = "";
  history.pushState(null, "", location.pathname);
  leaveOthers("document");
  mark("document");
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
  if (files.length === 1 && ["document", "list"].includes(name)) return false;
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
  say(document.querySelector("title"), "{name} · FinancIA", { name: () => t(VIEWS[name]?.title ?? "view_documents") });
  if (name === "list") return;
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
  arrange(shown);
  for (const [id, isIt] of [["to-document", shown !== "ledger"], ["to-ledger", shown === "ledger"]]) {
    if (isIt) find(id).setAttribute("aria-current", "page");
    else find(id).removeAttribute("aria-current");
  }
}

function arrange(shown) {
  const lists = shown !== "document" || !reading.isOpen;
  find("document-view").hidden = shown === "ledger";
  find("document-view").classList.toggle("of-collection", shown === "library");
  if (lists && !(shown in VIEWS)) showRecent();
  find("intake").hidden = !lists;
  find("work").hidden = lists;
  find("wishes").hidden = shown === "library" || !(lists || reading.wishes);
  for (const name of Object.keys(VIEWS)) find(`${name}-view`).hidden = name !== shown;
}
