// Files that are read and kept, over whatever view is shown: a line each with its progress, until a list has what was read.

import { addFile } from "./collections.js";
import { GivenUp, Lost, Problem, persist } from "./connection.js";
import { storeDocument } from "./document_calls.js";
import { find, icon, make } from "./dom.js";
import { quote, say } from "./language.js";
import "./ledger_strings.js";
import { announce, clear, problemKey, serviceWords, setServiceWords, showWait } from "./notices.js";
import { showRecent } from "./recent.js";
import { unlocked } from "./secret.js";
import { Uploads } from "./uploads.js";

const INTO = { into: "queue-notices" };

const STATES = { waiting: "upload_waiting", sending: "upload_sending", adding: "upload_adding", added: "document_read" };
const lines = new Map(); // key of an upload -> its line
export const uploads = new Uploads({ deliver, onChange: put, onAdded });
const waits = {
  onWait: (wait_s, error, retry) => showWait(wait_s, error, retry, INTO),
  onBack: () => {
    clear("wait", INTO);
    announce("back");
  },
};

/**
 * Read these files and keep them, and add them to the collection `store` if one is named. For each the page's document
 * gets an event `documentread` with {store, file}, `file` being the collection's answer.
 */
export function add(files, store = "") {
  uploads.add(store, files);
  announce("documents_adding", { n: files.length });
}

async function deliver(item, { onSent, signal, change }) {
  const onProgress = (reading) => change({ reading });
  const store = (password) => storeDocument(item.file, password, { onSent, onProgress, signal, ...waits });
  item.id ??= (await unlocked(item.file.name, store)).id; // a second try has no need to read it again
  change({ state: "adding" });
  return item.store && persist(() => addFile(item.store, item.id, signal), { ...waits, signal });
}

async function onAdded({ store, file: { name } }, added) {
  document.dispatchEvent(new CustomEvent("documentread", { detail: { store, file: { filename: name, ...added } } }));
  if (find("intake").checkVisibility()) await showRecent();
  if (find("intake").checkVisibility()) dropRead();
}

/** Show an upload, or no longer. */
function put(item) {
  if (item.state === "dropped") return drop(item.key);
  const line = lines.get(item.key) ?? begin(item);
  const failed = item.state === "failed";
  line.node.classList.toggle("failed", failed);
  line.isRead = item.state === "added";
  const { pages_done: done = 0, pages_total: total = null } = item.reading ?? {};
  const reads = item.state === "sending" && item.part >= 1;
  const key = reads ? (total > 1 ? "reading" : "document_reading") : STATES[item.state];
  say(line.told, failed ? reason(item.problem) : key, { part: item.part, done, total });
  setServiceWords(line.said, failed ? item.problem.detail ?? "" : "");
  line.bar.hidden = !["sending", "adding"].includes(item.state);
  const part = reads ? (total > 1 ? done / total : null) : item.part;
  if (item.state === "sending" && part !== null) line.bar.value = part;
  else line.bar.removeAttribute("value");
  line.retry.hidden = !failed || !mayPass(item.problem);
  if (failed) {
    find("sending").prepend(line.node); // where it is seen
    announce("upload_failed", { name: item.file.name });
  }
  if (item.state === "added" && item.id) line.name.replaceChildren(quote(make("a", { href: `#document=${item.id}:0` }), item.file.name));
}

/** Whether to send the same file again may help. */
const mayPass = (problem) => !(problem instanceof Problem) || problem.retryable || problem.code === "internal_error";

function reason(problem) {
  if (problem instanceof GivenUp) return "cancelled";
  return problem instanceof Lost || !(problem instanceof Problem) ? "upload_lost" : problemKey(problem);
}

function begin(item) {
  const line = { name: quote(make("p", { class: "row-name" }), item.file.name || "clipboard.png") };
  line.told = make("p", { class: "quiet" });
  line.said = serviceWords();
  line.bar = say(make("progress", { max: 1 }), "file_progress", { name: item.file.name }, "aria-label");
  line.retry = say(make("button", { type: "button", class: "small", onclick: () => uploads.retry(item) }), "retry");
  say(line.retry, "retry_file", { name: item.file.name }, "aria-label");
  const remove = make("button", { type: "button", class: "plain", onclick: () => (uploads.drop(item), drop(item.key)) }, icon("cross"));
  say(remove, "sending_drop", { name: item.file.name }, "aria-label");
  const text = make("div", { class: "row-text" }, line.name, line.told, line.said, line.bar);
  line.node = make("li", { class: "sending-row" }, icon("file"), text, line.retry, remove);
  lines.set(item.key, line);
  find("sending").append(line.node);
  return line;
}

/** Take away what is read: a list has it. */
export function dropRead() {
  for (const [key, { isRead }] of lines) if (isRead) drop(key);
}

function drop(key) {
  const line = lines.get(key);
  lines.delete(key);
  const hadFocus = line?.node.contains(document.activeElement);
  line?.node.remove();
  if (hadFocus) find("main").focus();
}

addEventListener("hashchange", dropRead);
addEventListener("beforeunload", (event) => uploads.busy && event.preventDefault());
