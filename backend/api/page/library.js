// The library: collections of documents, which are added, watched while they are read, and searched.

import "./library_strings.js";
import { LISTED, addFile, createStore, deleteFile, deleteStore, downloadFile, listFiles, listStores, readStore, reembedStore, removeFile } from "./collections.js";
import { GivenUp, Lost, Problem, persist } from "./connection.js";
import { storeDocument } from "./document_calls.js";
import { find, make } from "./dom.js";
import { offerFilters, resetFilters } from "./filter_panel.js";
import { say } from "./language.js";
import { dropRow, order, putFile, resetRows } from "./library_files.js";
import { makeFrame } from "./library_frame.js";
import { TABS, coverNothing, hitView, resetSearch, searchAgain, startSearch } from "./library_search.js";
import { announce, announceProgress, clear, put, showNotice, showProblem, showWait, tellFaults } from "./notices.js";
import { Polling } from "./polling.js";
import { askDelete, askName, proposedName } from "./questions.js";
import { add as queue, uploads } from "./queue.js";
import { unlocked } from "./secret.js";
import { connectTabs, selectOf } from "./tabs.js";
import { deleteLater, finishDeletion } from "./undo.js";

const INTO = { into: "library-notices" };
const guarded = (act) => tellFaults(act, INTO);
const PARTS_FOR_FILTERS = 10; // lists of files that are read to know what can be filtered by
const WITH_FILES = 3; // deletions at once
const WATCHED = 4; // lists beside the newest that are read at each look

// The collection that is shown: the answer about it, its files by id, and how many lists of them were shown.
let now = { id: null, store: null, files: new Map(), gone: new Set(), added: new Set(), parts: 1, more: false, control: new AbortController() };
let firstStore = null; // while it is made, so that two drops make one
let isMade = false;
let shown = false;

const waits = {
  onWait: (wait_s, error, retry) => showWait(wait_s, error, retry, INTO),
  onBack: () => {
    clear("wait", INTO);
    announce("back");
  },
};
const polling = new Polling(look);
document.addEventListener("documentread", ({ detail: { store, file } }) => store && store === now.id && putAdded(file));
const acts = { retry: retryFile, unlock: unlockFile, remove: askRemove };

/** Show the collection that the address names, or the newest. */
export async function enter() {
  shown = true;
  if (!isMade) makeLibrary();
  say(find("dragging"), "let_go_files");
  say(find("drop-title"), "drop_files");
  const wished = /^#library=([\w.%-]{1,200})$/.exec(location.hash)?.[1];
  const id = wished ? decodeURIComponent(wished) : now.id;
  if (now.id && id === now.id) {
    rename(id);
    polling.soon();
    return;
  }
  await guarded(() => openStore(id));
}

export function leave() {
  shown = false;
  polling.stop();
  coverNothing();
  say(find("dragging"), "let_go");
  say(find("drop-title"), "drop_here");
}

/** Add files to the collection that is shown, or to a first one. */
export async function add(files) {
  selectOf(TABS, "files");
  await guarded(async () => {
    if (!now.id) await (firstStore ??= makeFirstStore().finally(() => (firstStore = null)));
    queue(files, now.id);
    find("no-files").hidden = true;
  });
}

async function makeFirstStore() {
  await show(await persist(() => createStore(proposedName()), { ...waits, signal: now.control.signal }));
}

function makeLibrary() {
  isMade = true;
  makeFrame(hitView());
  connectTabs(TABS);
  startSearch({ ofStore: () => now.store, onWrongEncoder: offerReembedding, waiting: waits });
  resetFilters(searchAgain);
  find("store").addEventListener("change", () => {
    const id = find("store").value;
    location.hash = id ? `#library=${encodeURIComponent(id)}` : "#documents";
  });
  find("new-store").addEventListener("click", () => guarded(newStore));
  find("delete-store").addEventListener("click", () => guarded(askDeleteStore));
  find("more-files").addEventListener("click", () => guarded(readOn));
  find("filters-button").addEventListener("click", () => guarded(toggleFilters));
}

async function openStore(id) {
  const { signal } = now.control;
  const stores = await persist(() => listStores(signal), { ...waits, signal });
  const store = stores.find((one) => one.id === id) ?? stores[0];
  if (id && store?.id !== id) showNotice("absent", "store_absent", {}, INTO);
  fillStores(stores, store?.id);
  if (store) await show(store);
  else showEmpty();
}

function fillStores(stores, chosen) {
  const options = stores.map(({ id, name }) => {
    const option = make("option", { value: id });
    return name ? say(option, "{name}", { name }) : say(option, "store_unnamed");
  });
  find("store").replaceChildren(say(make("option", { value: "" }), "store_all"), ...options);
  find("store").hidden = !stores.length;
  if (chosen) find("store").value = chosen;
}

async function show(store) {
  begin(store.id);
  now.store = store;
  if (!find("store").querySelector(`option[value="${CSS.escape(store.id)}"]`)) {
    find("store").append(say(make("option", { value: store.id }), store.name ? "{name}" : "store_unnamed", { name: store.name }));
  }
  find("store").hidden = false;
  find("store").value = store.id;
  find("delete-store").hidden = false;
  rename(store.id);
  polling.soon();
}

function showEmpty() {
  begin(null);
  find("store").hidden = true;
  find("delete-store").hidden = true;
  say(find("store-facts"), "store_none");
  find("no-files").hidden = true;
}

function begin(id) {
  now.control.abort();
  now = { id, store: null, files: new Map(), gone: new Set(), added: new Set(), parts: 1, more: false, control: new AbortController() };
  polling.stop();
  resetRows();
  resetSearch();
  resetFilters(searchAgain);
  find("filters").hidden = true;
  find("filters-button").setAttribute("aria-expanded", "false");
  for (const kind of ["encoder", "problem", "search"]) clear(kind, INTO);
  for (const name of ["store-progress", "store-progress-text", "more-files"]) find(name).hidden = true;
  say(find("tab-files"), "tab_files", { n: 0 });
}

/** Let the address name the collection that is shown. */
function rename(id) {
  const hash = `#library=${encodeURIComponent(id)}`;
  if (shown && location.hash !== hash) history.replaceState(null, "", hash);
  find("to-library").href = hash;
}

// --- watching

/** One look at the collection and at those of its files that may have changed. */
async function look() {
  const mine = now;
  if (!mine.id) return { busy: false, changed: false };
  const { signal } = mine.control;
  mine.added.clear();
  try {
    const ends = endsToWatch(mine);
    const [store, ...lists] = await Promise.all([readStore(mine.id, signal), ...ends.map((after) => listFiles(mine.id, { after, signal }))]);
    if (mine !== now) return { busy: false, changed: false };
    clear("wait", INTO);
    const before = JSON.stringify([mine.store, [...mine.files.values()]]);
    mine.store = store;
    lists.forEach((list, index) => merge(mine, list, ends[index]));
    const changed = before !== JSON.stringify([store, [...mine.files.values()]]);
    if (changed || !mine.isDrawn) draw(mine);
    return { busy: Boolean(store.file_counts?.in_progress || store.reembedding || inProgress(mine).length), changed };
  } catch (error) {
    if (mine !== now || error instanceof GivenUp) return { busy: mine === now && !mine.control.signal.aborted, changed: false };
    if (!(error instanceof Lost || error instanceof Problem)) throw error;
    if (error.status === 404) {
      await guarded(() => openStore(mine.id)); // somebody else has deleted it
      return { busy: false, changed: false };
    }
    const passes = error instanceof Lost || error.passing;
    if (passes) showWait(polling.pause_s, error, () => polling.soon(), INTO);
    else showProblem(error, INTO);
    return { busy: passes, changed: false };
  }
}

/** The files that the lists read so far say are in progress. The collection's own count may be of a moment later. */
const inProgress = (mine) => [...mine.files.values()].filter((file) => file.status === "in_progress");

/**
 * The files behind which lists must be read to see all that may change: the newest list, and those that hold files in
 * progress; of many of these the last, for the oldest files are read first.
 */
function endsToWatch(mine) {
  const ids = [...mine.files.keys()];
  const ends = [];
  let covered = LISTED;
  ids.forEach((id, index) => {
    if (index < covered || mine.files.get(id).status !== "in_progress") return;
    ends.push(ids[index - 1]);
    covered = index + LISTED;
  });
  return [null, ...ends.slice(-WATCHED)];
}

/**
 * Take over the list behind the file `end`, or the newest. It is complete down to its last file: what it lacks is gone,
 * unless it was added since the list was asked for.
 */
function merge(mine, { files, more }, end) {
  if (end !== null && !mine.files.has(end)) return; // gone meanwhile; the next look finds another one
  const fresh = files.filter((file) => !mine.gone.has(file.id));
  const listed = new Set(fresh.map((file) => file.id));
  const oldest = more ? files.at(-1).created_at : -Infinity;
  const newest = mine.files.get(end)?.created_at ?? Infinity;
  for (const { id, created_at: since } of mine.files.values()) {
    if (oldest < since && since < newest && !listed.has(id) && !mine.added.has(id)) hide(mine, id);
  }
  if (end === null && mine.parts === 1) mine.more = more;
  const rest = [...mine.files.values()].filter((file) => !listed.has(file.id));
  const at = rest.findIndex((file) => file.id === end) + 1;
  const sorted = [...rest.slice(0, at), ...fresh, ...rest.slice(at)];
  mine.files = new Map(sorted.map((file) => [file.id, file]));
}

function draw(mine) {
  mine.isDrawn = true;
  for (const file of mine.files.values()) putFile(file, acts);
  order([...mine.files.keys()]);
  drawStore(mine);
  drawReembedding(mine.store);
  offer(mine);
}

const offer = (mine) => offerFilters([...mine.files.values()].filter((file) => file.status === "completed"), mine.more);

function drawStore({ store, files, more }) {
  const counts = store.file_counts ?? {};
  say(find("store-facts"), "store_facts", { n: counts.total ?? 0, chunks: store.chunks ?? 0, bytes: store.usage_bytes ?? 0 });
  say(find("tab-files"), "tab_files", { n: counts.total ?? 0 });
  find("no-files").hidden = files.size > 0 || uploads.of(store.id).length > 0;
  find("more-files").hidden = !more;
  const busy = counts.in_progress > 0;
  find("store-progress").hidden = find("store-progress-text").hidden = !busy;
  const values = { done: counts.total - counts.in_progress, total: counts.total, failed: counts.failed };
  if (busy) {
    find("store-progress").value = values.done / values.total;
    say(find("store-progress-text"), counts.failed ? "store_reading_failed" : "store_reading", values);
    announceProgress("store_reading", values);
  } else if (now.wasBusy) {
    announceProgress(counts.failed ? "store_read_partly" : "store_read", values);
  }
  now.wasBusy = busy;
}

// --- files

function putAdded(file) {
  now.files = new Map([[file.id, file], ...now.files]);
  now.added.add(file.id);
  putFile(file, acts);
  order([...now.files.keys()]);
  if (shown) polling.soon();
}

async function retryFile(file) {
  await guarded(async () => {
    const { signal, store } = { signal: now.control.signal, store: now.id };
    await absentIsFine(() => removeFile(store, file.id, signal));
    await addAgain(file, file.id, { signal, store });
  });
}

/** Keep a locked file as a document that is read with its password, in place of what could not be read. */
async function unlockFile(file) {
  await guarded(async () => {
    const { signal, store } = { signal: now.control.signal, store: now.id };
    const content = new File([await downloadFile(file.id, signal)], file.filename);
    const keep = (password) => storeDocument(content, password, { onSent: () => {}, onProgress: () => {}, signal, ...waits });
    const { id } = await unlocked(file.filename, keep);
    await absentIsFine(() => deleteFile(file.id));
    hide(now, file.id);
    await addAgain(file, id, { signal, store });
  });
}

async function addAgain({ filename }, id, { signal, store }) {
  const added = await addFile(store, id, signal);
  if (store !== now.id) return;
  now.files.set(id, { filename, ...added });
  now.added.add(id);
  putFile(now.files.get(id), acts);
  polling.soon();
}

async function askRemove(file) {
  const mine = now;
  const also = await askDelete(["delete_file_title", { name: file.filename }], ["delete_file_text", {}], ["delete_file_too", {}], false);
  if (also === null) return;
  forget(mine, file.id);
  const act = () => guarded(async () => {
    await absentIsFine(() => removeFile(mine.id, file.id));
    if (also) await absentIsFine(() => deleteFile(file.id));
    if (mine === now) polling.soon();
  });
  const restore = () => {
    mine.gone.delete(file.id);
    if (mine === now) polling.soon();
  };
  deleteLater(["file_deleted", { name: file.filename }], { ...INTO, act, restore });
}

/** What somebody else has deleted meanwhile is as it should be. */
async function absentIsFine(act) {
  try {
    await act();
  } catch (error) {
    if (error.status !== 404) throw error;
  }
}

/** Show a file no more that was deleted here, also if a list that is on its way still has it. */
function forget(mine, id) {
  mine.gone.add(id);
  hide(mine, id);
}

function hide(mine, id) {
  mine.files.delete(id);
  dropRow(`file-${id}`);
}

/** Read the next list of files. */
async function readOn() {
  const mine = now;
  const after = [...mine.files.keys()].at(-1);
  if (!after) return;
  const list = await listFiles(mine.id, { after, signal: mine.control.signal });
  if (mine !== now) return;
  mine.parts += 1;
  mine.more = list.more;
  merge(mine, list, after);
  draw(mine);
}

async function toggleFilters() {
  const opens = find("filters").hidden;
  find("filters").hidden = !opens;
  find("filters-button").setAttribute("aria-expanded", String(opens));
  const mine = now;
  while (opens && mine === now && mine.more && mine.parts < PARTS_FOR_FILTERS) await readOn();
}

// --- collections

async function newStore() {
  const name = await askName("store_new", "store_name", proposedName());
  if (name === null) return;
  const store = await createStore(name, now.control.signal);
  await show(store);
  selectOf(TABS, "files");
  find("choose").focus();
  announce("store_made", { name });
}

async function askDeleteStore() {
  const { store } = now;
  const n = store.file_counts?.total ?? 0;
  const title = ["delete_store_title", { name: store.name || store.id }];
  const also = await askDelete(title, ["delete_store_text", { n }], ["delete_store_files", { n }], false);
  if (also === null) return;
  await finishDeletion();
  uploads.dropAll(store.id);
  if (also) await deleteFiles(store.id);
  await absentIsFine(() => deleteStore(store.id));
  announce("store_deleted", { name: store.name || store.id });
  begin(null);
  history.replaceState(null, "", "#library");
  await openStore(null);
  find("library-title").focus();
}

/** Delete every file of a collection from the service, a few at once. */
async function deleteFiles(store) {
  for (;;) {
    const { files, more } = await listFiles(store, {});
    for (let at = 0; at < files.length; at += WITH_FILES) {
      await Promise.all(files.slice(at, at + WITH_FILES).map((file) => absentIsFine(() => deleteFile(file.id))));
    }
    if (!more) return;
  }
}

/** A search was refused: the vectors are of another model than the one that serves. */
function offerReembedding() {
  if (now.store.reembedding) return;
  clear("encoder", INTO);
  const button = make("button", { type: "button", id: "reembed", onclick: () => guarded(reembed) });
  const why = say(make("p"), "wrong_encoder_why", { name: now.store.encoder?.name ?? "" });
  put("encoder", { class: "notice", role: "group", "aria-labelledby": "reembed-title", ...INTO }, say(make("h2", { id: "reembed-title" }), "wrong_encoder"), why, say(button, "reembed"));
}

/** How far the vectors are made anew, or that they are. */
function drawReembedding({ reembedding }) {
  const known = find("library-notices").querySelector("[data-kind=encoder]:has(progress)");
  if (!reembedding) {
    if (known) announce("reembedded");
    known?.remove();
    return;
  }
  const { chunks_done: done, chunks_total: total } = reembedding;
  if (!known) {
    clear("encoder", INTO);
    const bar = say(make("progress"), "reembedding_progress", {}, "aria-label");
    put("encoder", { class: "notice", ...INTO }, make("p"), bar);
  }
  const notice = find("library-notices").querySelector("[data-kind=encoder]");
  say(notice.querySelector("p"), "reembedding", { done, total });
  if (total) notice.querySelector("progress").value = done / total;
  announceProgress("reembedding", { done, total });
}

async function reembed() {
  now.store = await reembedStore(now.id, now.control.signal);
  drawReembedding(now.store);
  polling.soon();
}
