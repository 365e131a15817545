// The ledger: stored documents as a table that is sorted, filtered and summed, and exported; files dropped here are read
// and kept. Beside it the validation screen, which one document is opened in.

import { collecting } from "./collecting.js";
import { persist } from "./connection.js";
import { exportDocuments, readLedger } from "./document_calls.js";
import { find, make } from "./dom.js";
import { later, language, say } from "./language.js";
import { makeLedgerFrame } from "./ledger_frame.js";
import "./ledger_strings.js";
import { addRows, drawRows, drawSums, isPaper, markSorted } from "./ledger_table.js";
import { centsOf, localAmount, localDate } from "./local_values.js";
import { announce, clear, showNotice, showWait, tellFaults } from "./notices.js";
import { add, dropRead } from "./queue.js";
import { deleteDocument } from "./stored_document.js";
import { deleteLater } from "./undo.js";
import { closeDocument, openDocument } from "./validation.js";

const INTO = { into: "ledger-notices" };
const guarded = (act) => tellFaults(act, INTO);
const LISTED = 5000; // rows that are loaded; exports have all
const LOOKED_AT = 20; // rows at once for the next one to check
const SHOWN = 100; // rows that are drawn at once; more as their end comes near
const MAX_IDS = 50_000; // characters of an address
const DOCUMENT = /^#document=([\w-]{1,80})(?::(\d{1,4}))?$/;

let all = []; // rows as the service tells them
let rows = []; // those of papers to book, and of all others where that is wished
let shown = []; // after filters and sorting
let chosen = new Set(); // keys of rows
let gone = new Set(); // ids of files that are being deleted
let sort = { by: "", falling: true };
let drawn = SHOWN;
let control = new AbortController();
let isMade = false;
let loads = 0;

const keyOf = (row) => `${row.document_id}:${row.index}`;

const endNears = new IntersectionObserver(([{ isIntersecting }]) => isIntersecting && drawMore(), { rootMargin: "100% 0px" });
const waits = {
  onWait: (wait_s, error, retry) => showWait(wait_s, error, retry, INTO),
  onBack: () => {
    clear("wait", INTO);
    announce("back");
  },
};

/** Show what the address names: the table, or one document. */
export async function enter() {
  if (!isMade) makeLedger();
  say(find("dragging"), "let_go_documents");
  const [, id, index] = DOCUMENT.exec(location.hash) ?? [];
  find("ledger-table-view").hidden = Boolean(id);
  find("validation").hidden = !id;
  control.abort();
  control = new AbortController();
  if (id) return guarded(() => openDocument(id, Number(index ?? 0), { next: openNext, others: () => all }));
  closeDocument();
  await guarded(load);
}

export function leave() {
  control.abort();
  closeDocument();
  say(find("dragging"), "let_go");
}

document.addEventListener("documentread", () => {
  if (isMade && !find("ledger-view").hidden && !find("ledger-table-view").hidden) guarded(load);
});

function makeLedger() {
  isMade = true;
  makeLedgerFrame();
  find("add-documents").addEventListener("click", () => find("documents").click());
  find("documents").addEventListener("change", () => {
    if (find("documents").files.length) add([...find("documents").files]);
    find("documents").value = ""; // the same files may be chosen again
  });
  find("ledger-filters").addEventListener("input", refresh);
  find("ledger-filters").addEventListener("submit", (event) => event.preventDefault());
  find("export").addEventListener("submit", (event) => {
    event.preventDefault();
    guarded(exportShown);
  });
  find("choose-all").addEventListener("change", () => {
    chosen = new Set(find("choose-all").checked ? shown.map(keyOf) : []);
    draw();
  });
  find("delete-chosen").addEventListener("click", deleteChosen);
  find("collect-chosen").append(collecting(() => [...chosenFiles()], INTO));
  find("ledger-more").addEventListener("click", drawMore);
  endNears.observe(find("ledger-more"));
  for (const button of find("ledger-head").querySelectorAll("button")) {
    button.addEventListener("click", () => {
      sort = { by: button.dataset.sort, falling: sort.by === button.dataset.sort ? !sort.falling : false };
      refresh();
    });
  }
}

async function load() {
  const { signal } = control;
  const mine = ++loads;
  const answer = await persist(() => readLedger({ limit: LISTED }, signal), { ...waits, signal });
  if (mine !== loads) return; // one that was asked for later is on its way, and this one may come after it
  all = answer.data.filter((row) => !gone.has(row.document_id));
  markForeign();
  const known = new Set(all.map(keyOf));
  chosen = new Set([...chosen].filter((key) => known.has(key)));
  dropRead();
  drawMissing(answer.missing_numbers);
  if (answer.has_more) showNotice("many", "ledger_many", { n: all.length, total: answer.total }, INTO);
  else clear("many", INTO);
  refresh();
}

/** Mark rows in another currency than most have: theirs stands beside the total. */
function markForeign() {
  const groups = [...Map.groupBy(all.filter((row) => row.currency), (row) => row.currency)];
  const [usual] = groups.sort(([, one], [, other]) => other.length - one.length)[0] ?? [];
  for (const row of all) row.foreign = Boolean(row.currency) && row.currency !== usual;
}

/** Filter, sort and draw anew. */
function refresh() {
  const { others } = find("ledger-filters").elements;
  const n = all.filter((row) => !isPaper(row)).length;
  rows = others.checked || n === all.length ? all : all.filter(isPaper);
  find("filter-others").hidden = !n || n === all.length;
  say(find("filter-others").lastChild, "filter_others", { n });
  shown = rows.filter(matcher());
  if (sort.by) shown = sorted(shown);
  drawn = SHOWN;
  draw();
}

/** A text without case and accents. */
const plain = (text) => text.normalize("NFD").replace(/\p{M}/gu, "").toLocaleLowerCase();

const SAID = ["supplier", "tax_id", "customer", "customer_tax_id", "number", "filename", "date", "due_date"];
const SUMS = ["base", "tax", "withholding", "total", "amount_due"];

/** All that is said of a row, amounts and dates in local form, too. */
function saidOf(row) {
  const dates = [row.date, row.due_date].map((value) => localDate(value));
  const amounts = SUMS.map((name) => row[name] ?? "");
  return plain([...SAID.map((name) => row[name] ?? ""), ...dates, ...amounts, ...amounts.map((value) => localAmount(value))].join(" "));
}

function matcher() {
  const { text, state, from, until, doubles } = find("ledger-filters").elements;
  const words = plain(text.value).split(/\s+/).filter((word) => word && word !== "€");
  return (row) => {
    const said = words.length ? saidOf(row) : "";
    return (
      words.every((word) => said.includes(word)) &&
      (!state.value || row.state === state.value) &&
      (!from.value || (row.date ?? "") >= from.value) &&
      (!until.value || (row.date && row.date <= until.value)) &&
      (!doubles.checked || row.duplicates > 0)
    );
  };
}

const AMOUNTS = ["base", "tax", "withholding", "total"];

function sorted(list) {
  const { by, falling } = sort;
  const compare = AMOUNTS.includes(by) ? (one, other) => (centsOf(one[by]) ?? 0) - (centsOf(other[by]) ?? 0) : byText(by);
  const known = list.filter((row) => row[by] !== null).sort(compare);
  return [...(falling ? known.reverse() : known), ...list.filter((row) => row[by] === null)]; // what is absent comes last
}

function byText(by) {
  const { compare } = new Intl.Collator(language(), { numeric: true, sensitivity: "base" });
  return (one, other) => compare(one[by], other[by]);
}

function choose(row, isChosen) {
  if (isChosen) chosen.add(keyOf(row));
  else chosen.delete(keyOf(row));
  drawTold();
}

function drawMore() {
  addRows(shown.slice(drawn, drawn + SHOWN), chosen, choose);
  drawn += SHOWN;
  find("ledger-more").hidden = shown.length <= drawn;
  endNears.disconnect(); // observed anew it tells whether the end is still near
  endNears.observe(find("ledger-more"));
}

function draw() {
  drawRows(shown.slice(0, drawn), chosen, choose);
  markSorted(sort);
  find("ledger-more").hidden = shown.length <= drawn;
  find("ledger-scroll").hidden = find("ledger-filters").hidden = !rows.length;
  find("ledger-none").hidden = rows.length > 0;
  find("ledger-no-match").hidden = !rows.length || shown.length > 0;
  drawTold();
}

/** What depends on which rows are chosen: sums and the words about them. */
function drawTold() {
  const mine = shown.filter((row) => chosen.has(keyOf(row)));
  const all = find("choose-all");
  all.checked = mine.length > 0 && mine.length === shown.length;
  all.indeterminate = mine.length > 0 && mine.length < shown.length;
  find("delete-chosen").hidden = find("collect-chosen").hidden = !mine.length;
  drawSums(mine.length ? mine : shown);
  const waiting = rows.filter((row) => row.state === "to_review").length;
  say(find("ledger-facts"), "ledger_facts", { n: rows.length, waiting });
  say(find("ledger-chosen"), mine.length ? "ledger_chosen" : "ledger_shown", { n: mine.length || shown.length });
}

function drawMissing(runs) {
  const items = runs.map(({ supplier, first, last, missing }) =>
    say(make("li"), "missing_run", { supplier: supplier ?? "", first, last, missing: missing.join(", "), n: missing.length }),
  );
  find("missing").hidden = !items.length;
  find("missing-list").replaceChildren(...items);
}

/** The ids of the files of the rows that are chosen. */
const chosenFiles = () => new Set(shown.filter((row) => chosen.has(keyOf(row))).map((row) => row.document_id));

/** Delete the files of the rows that are chosen, with all of their documents, unless it is taken back. */
function deleteChosen() {
  const ids = chosenFiles();
  const before = all;
  gone = gone.union(ids);
  all = all.filter((row) => !ids.has(row.document_id));
  chosen = new Set();
  refresh();
  find("ledger-title").focus();
  const act = () => guarded(async () => {
    for (const id of ids) await deleteDocument(id).catch((error) => ignoreAbsent(error));
    gone = gone.difference(ids);
  });
  const restore = () => {
    gone = gone.difference(ids);
    guarded(load);
  };
  deleteLater(["documents_deleted", { n: before.length - all.length }], { ...INTO, act, restore });
}

/** What somebody else has deleted meanwhile is as it should be. */
function ignoreAbsent(error) {
  if (error.status !== 404) throw error;
}

async function exportShown() {
  const mine = shown.filter((row) => chosen.has(keyOf(row)));
  const meant = mine.length ? mine : shown;
  const query = { format: find("export-format").value, locale: language() };
  if (meant.length < all.length) query.ids = meant.map(keyOf).join();
  if ((query.ids?.length ?? 0) > MAX_IDS) return showNotice("many", "export_too_many", { n: meant.length }, INTO);
  const { signal } = control;
  const { blob, name } = await persist(() => exportDocuments(query, signal), { ...waits, signal });
  const url = URL.createObjectURL(blob);
  make("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000); // the browser reads it after the click
  announce("exported", { n: meant.length, name });
}

/** Open the next document that nobody has confirmed, the oldest first; the table where there is none. */
async function openNext(id, index) {
  const { signal } = control;
  const isNext = (row) => isPaper(row) && keyOf(row) !== `${id}:${index}`;
  let next = null;
  for (let offset = 0, isOver = false; !next && !isOver; offset += LOOKED_AT) {
    const query = { state: "to_review", order: "asc", limit: LOOKED_AT, offset };
    const { data, has_more: more } = await persist(() => readLedger(query, signal), { ...waits, signal });
    [next, isOver] = [data.find(isNext), !more];
  }
  if (!next) announce("all_confirmed");
  location.hash = next ? `#document=${keyOf(next)}` : "#ledger";
}
