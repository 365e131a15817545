// The files of the collection that is shown: a row each, with what is done with it, its reason to fail, and its buttons.

import { find, icon, make } from "./dom.js";
import { className, languageName, later, quote, say } from "./language.js";
import { serviceWords, setServiceWords } from "./notices.js";
import { STRINGS } from "./strings.js";

const PROGRESS = {
  queued: ["file_queued", "file_queued"],
  reading: ["file_reading_unknown", "file_reading"],
  embedding: ["file_embedding_unknown", "file_embedding"],
  done: ["file_finishing", "file_finishing"],
};
const FAILURES = { unsupported_file: "failed_unsupported", invalid_file: "failed_invalid", server_error: "failed_server" };

const rows = new Map(); // file- and its id -> its row

/** Begin with no rows. */
export function resetRows() {
  rows.clear();
  find("file-rows").replaceChildren();
}

/** Whether a file could not be read for want of its password. */
const isLocked = (file) => file.status === "failed" && file.last_error?.reason === "password_required";

/** Show a file of the collection; `act` is {retry(file), unlock(file), remove(file)}. Returns its row. */
export function putFile(file, act) {
  const row = rowOf(`file-${file.id}`, file.filename ?? file.id);
  row.file = file;
  row.node.dataset.status = file.status;
  const failed = file.status === "failed" || file.status === "cancelled";
  tell(row, {
    failed,
    parts: factsOf(file),
    said: file.status === "failed" ? file.last_error?.message ?? "" : "",
    progress: file.status === "in_progress" ? progressOf(file.progress) : null,
    retry: isLocked(file) ? () => act.unlock(file) : failed && file.last_error?.retryable !== false ? () => act.retry(file) : null,
    remove: () => act.remove(file),
  });
  if (isLocked(file)) say(say(row.retry, "unlock"), "unlock_file", { name: row.name }, "aria-label");
  return row;
}

/** Take a row away; a focus that was in it goes to the next one. */
export function dropRow(id) {
  const row = rows.get(id);
  if (!row) return;
  rows.delete(id);
  const next = row.node.nextElementSibling ?? row.node.previousElementSibling;
  const hadFocus = row.node.contains(document.activeElement);
  row.node.remove();
  if (hadFocus) (next?.querySelector("button:not([hidden])") ?? find("choose")).focus();
}

/** Put the rows in this order. */
export function order(ids) {
  const list = find("file-rows");
  const nodes = ids.map((id) => rows.get(`file-${id}`)?.node).filter(Boolean);
  const now = [...list.children];
  if (nodes.length === now.length && nodes.every((node, index) => node === now[index])) return;
  const focused = document.activeElement;
  list.append(...nodes);
  if (list.contains(focused)) focused.focus(); // moving a node takes its focus
}

function rowOf(id, name) {
  if (rows.has(id)) return rows.get(id);
  const row = { name, state: "" };
  row.facts = make("p", { class: "row-facts quiet" });
  row.said = serviceWords();
  row.bar = make("progress", { hidden: true });
  row.retry = say(make("button", { type: "button", class: "small", hidden: true, onclick: () => row.onRetry() }), "retry");
  say(row.retry, "retry_file", { name }, "aria-label");
  row.remove = make("button", { type: "button", class: "plain", onclick: () => row.onRemove() }, icon("bin"));
  say(say(row.remove, "delete_file", { name }, "aria-label"), "delete", {}, "title");
  const text = make("div", { class: "row-text" }, make("p", { class: "row-name" }, quote(make("a", { href: `#document=${id.slice("file-".length)}` }), name)), row.facts, row.said, row.bar);
  row.node = make("li", { class: "file-row", "data-file": id.slice("file-".length) }, icon("file"), text, make("div", { class: "row-actions" }, row.retry, row.remove));
  rows.set(id, row);
  find("file-rows").append(row.node);
  return row;
}

function tell(row, { failed, parts, said, progress, retry, remove }) {
  row.node.classList.toggle("failed", failed);
  row.facts.replaceChildren(...parts);
  setServiceWords(row.said, said);
  row.bar.hidden = !progress;
  if (progress) {
    if (progress.value === null) row.bar.removeAttribute("value");
    else row.bar.value = progress.value;
    say(row.bar, "file_progress", { name: row.name }, "aria-label");
  }
  row.retry.hidden = !retry;
  [row.onRetry, row.onRemove] = [retry, remove];
}

/** The share that is done; null where no share is known; no bar at all for what waits. */
function progressOf({ stage = "queued", done = 0, total = null } = {}) {
  return stage === "queued" ? null : { value: total && done ? done / total : null };
}

/** Why a file failed, in the language of the page: as narrowly as the page has words for it. */
function reasonKey(error) {
  const key = `failed_${error?.reason}`;
  return key in STRINGS.en ? key : FAILURES[error?.code] ?? "failed_server";
}

function factsOf(file) {
  if (file.status === "failed") return [say(make("span"), reasonKey(file.last_error))];
  if (file.status === "cancelled") return [say(make("span"), "cancelled")];
  if (file.status === "in_progress") {
    const { stage = "queued", done = 0, total = null } = file.progress ?? {};
    return [say(make("span"), (PROGRESS[stage] ?? PROGRESS.queued)[total ? 1 : 0], { done, total })];
  }
  const [kind] = [file.found_attributes?.document_type ?? []].flat();
  return [
    kind && say(make("span"), "{name}", { name: later(className, String(kind)) }),
    file.language && say(make("span"), "{name}", { name: later(languageName, file.language) }),
    file.page_count > 0 && say(make("span"), "pages_of_file", { n: file.page_count }),
    say(make("span"), "chunks_of_file", { n: file.chunks ?? 0 }),
  ].filter(Boolean);
}
