// The validation screen: one stored document, its values as inputs in the order in which people check them, and its pages
// with the active value lit up. A click on words fills the active input; every change is sent and checked anew.

import { GivenUp, Lost, Problem } from "./connection.js";
import { confirm, correct, split } from "./document_calls.js";
import { find, icon, make } from "./dom.js";
import { follow } from "./events.js";
import { equationIn, fieldName, later, quote, say, t } from "./language.js";
import { announce, clear, showNotice, showProblem } from "./notices.js";
import { kindOf, localAmount, shownValue } from "./local_values.js";
import { taughtBy, whyOf } from "./reasons.js";
import { documentPath, readDocument } from "./stored_document.js";
import { checkDigits, differences } from "./validation_checks.js";
import { cutting } from "./validation_cut.js";
import { LIST_COLUMNS, fieldsToCheck, inputOf, listOf, valueOf } from "./validation_fields.js";
import { cutOut, emptyPages, forgetCuts, light, showPages } from "./validation_pages.js";

const INTO = { into: "ledger-notices" };

// The document that is shown: its answer, which document of the file, what was changed, and what is being sent.
let now = null;

/**
 * Show document `index` of a stored file; `next(id, index)` goes on when it is confirmed, `others()` are the rows of the
 * ledger that are known, for duplicates.
 */
export async function openDocument(id, index, { next, others }) {
  closeDocument();
  const mine = (now = { id, index, next, others, answer: null, undone: [], pending: new Map(), era: 0, taken_ms: -LOOK_MS, sent: Promise.resolve(), active: null, control: new AbortController() });
  const { pages, ...answer } = await readDocument(id, mine.control.signal);
  if (mine !== now) return;
  mine.answer = answer;
  mine.index = Math.min(index, answer.documents.length - 1);
  draw(mine, pages);
  (firstDoubt() ?? firstInput())?.focus({ preventScroll: true });
  watchOthers(mine);
}

/** Show what others change in the document while it is open. */
async function watchOthers(mine) {
  let by = "";
  const onEvent = (name, data) => {
    if (name === "change") by = data.by;
    else if (name === "state") mine.sent = mine.sent.then(() => data.revision > mine.answer.revision && takeOver(mine, by));
    else if (name === "end") showProblem(new Problem({ code: "deleted" }), INTO);
  };
  const quiet = { onWait: () => {}, onBack: () => {} };
  await follow(documentPath(mine.id, "/events"), { signal: mine.control.signal, onEvent, ...quiet }).catch((error) => {
    if (!(error instanceof Problem || error instanceof Lost || error instanceof GivenUp)) throw error;
  });
}

/** A person's name; a service without keys knows none. */
const who = (by) => (by === "anybody" ? t("somebody") : by);

/** Show what somebody else has changed; what is being typed stays. */
function takeOver(mine, by) {
  return guarded(mine, async () => {
    mine.answer = await readDocument(mine.id, mine.control.signal);
    if (mine !== now) return;
    Object.assign(mine, { undone: [], taken_ms: performance.now(), index: Math.min(mine.index, mine.answer.documents.length - 1) });
    const { id, value } = document.activeElement;
    const typed = isTyping(mine, document.activeElement);
    keepFocus(() => drawFields(mine));
    if (typed && find(id)) find(id).value = value;
    showNotice("others", "changed_by", { by: later(who, by) }, INTO);
    announce("changed_by", { by: who(by) });
  });
}

export function closeDocument() {
  now?.control.abort();
  now = null;
  clear("problem", INTO);
  clear("others", INTO);
  emptyPages();
  find("validation")?.replaceChildren();
}

const ours = (mine) => mine.answer.documents[mine.index];
const inputs = () => [...find("validation-form").querySelectorAll("input")];
const firstInput = () => inputs()[0];
const firstDoubt = () => find("validation-form").querySelector(".doubtful input");

// --- drawing

function draw(mine, pages) {
  const form = make("form", { id: "validation-form", class: "validation-form", novalidate: true, autocomplete: "off" });
  const checks = say(make("ul", { id: "validation-checks", class: "validation-checks" }), "checks", {}, "aria-label");
  const scroll = make("div", { id: "validation-pages", class: "validation-pages", tabindex: "0", role: "region" });
  say(scroll, "page_images", {}, "aria-label");
  find("validation").replaceChildren(bar(mine), ...(pages.length > 1 ? [cutting(mine.answer.documents, (parts) => cut(mine, parts))] : []), make("div", { class: "validation-columns" }, make("div", {}, checks, form), scroll));
  showPages(mine.id, pages.filter(({ number }) => ours(mine).pages.includes(number)), (place) => fill(mine, place));
  drawFields(mine);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("focusin", ({ target }) => target.matches("input") && activate(mine, target));
  form.addEventListener("input", ({ target }) => target.matches("input") && recheck(mine, target));
  form.addEventListener("change", ({ target }) => target.matches("input") && commit(mine, target));
  find("validation").onkeydown = (event) => onKey(mine, event);
}

function bar(mine) {
  const count = mine.answer.documents.length;
  const back = say(make("a", { href: "#ledger" }), "back_to_ledger");
  const title = quote(make("h1", { id: "validation-title", tabindex: "-1" }), mine.answer.filename);
  const others = count < 2 ? [] : [...Array(count).keys()].map((index) => part(mine, index));
  const nav = say(make("nav", { class: "parts", hidden: count < 2 }, ...others), "documents_of_file", {}, "aria-label");
  const undo = say(make("button", { type: "button", id: "undo", disabled: true, onclick: () => takeBack(mine) }), "undo");
  const done = say(make("button", { type: "button", id: "confirm", class: "primary", onclick: () => settle(mine) }), "confirm");
  say(done, "confirm_keys", {}, "title");
  const facts = make("p", { id: "validation-facts", class: "quiet" });
  const whole = say(make("a", { class: "button", href: `#document=${mine.id}` }), "show_whole");
  return make("div", { class: "bar" }, make("div", { class: "bar-file" }, back, title, facts, nav), make("div", { class: "bar-actions" }, whole, undo, done));
}

/** Cut the file anew, and go to its first document. */
async function cut(mine, documents) {
  await mine.sent;
  if (mine !== now) return;
  await guarded(mine, async () => {
    const { documents: made } = await split(mine.id, { documents, revision: mine.answer.revision }, mine.control.signal);
    if (mine !== now) return;
    history.replaceState(null, "", `#document=${mine.id}:0`);
    await openDocument(mine.id, 0, mine);
    announce("cut_done", { n: made.length });
  });
}

function part(mine, index) {
  const link = make("a", { href: `#document=${mine.id}:${index}`, "aria-current": index === mine.index ? "page" : null });
  return say(link, "part_of_file", { n: index + 1 });
}

/** Draw all inputs; doubtful ones first. What is active stays so where it is still there. */
function drawFields(mine) {
  forgetCuts();
  const document = ours(mine);
  const doubts = doubtsOf(mine);
  const names = fieldsToCheck(document);
  const order = [...names.filter((name) => doubts.has(name)), ...names.filter((name) => !doubts.has(name))];
  const nodes = order.map((name) => (name in LIST_COLUMNS ? listOf(name, document, listActs(mine)) : single(mine, name, doubts.get(name))));
  find("validation-form").replaceChildren(...nodes);
  drawChecks(mine);
}

function single(mine, name, doubt) {
  const field = ours(mine).fields[name];
  const input = inputOf(`field-${name}`, name, field);
  const note = make("p", { class: "quiet note", id: `note-${name}` });
  const why = make("p", { class: "quiet reason", id: `reason-${name}` });
  input.setAttribute("aria-describedby", `${note.id} ${why.id}`);
  const label = say(make("label", { for: input.id }), "{name}", { name: later(fieldName, name) });
  const node = make("div", { class: `check-field${doubt ? " doubtful" : ""}`, "data-field": name }, label, input, note, why);
  const canvas = make("canvas", { class: "crop", "aria-hidden": "true" });
  if (field && cutOut(canvas, field)) input.before(canvas);
  tellNote(node, name, field, doubt);
  if (field?.repair) node.append(repairOf(mine, name, field.repair));
  return node;
}

function repairOf(mine, name, repair) {
  const use = () => change(mine, name, { value: repair });
  return say(make("button", { type: "button", class: "small", onclick: use }), "use_repair", { value: repair });
}

/** Why a value is doubtful; else how it was printed, where that differs. */
function tellNote(node, name, field, doubt) {
  const note = node.querySelector(".note");
  node.classList.toggle("doubtful", Boolean(doubt));
  const isPrinted = field?.text && field.text !== shownValue(name, field.value) && kindOf(name) !== "text";
  const isSeen = !doubt && !field?.corrected && !taughtBy(field) && node.querySelector(".crop");
  note.classList.toggle("unseen", Boolean(isSeen)); // it can be seen there
  say(node.querySelector(".reason"), "{why}", { why: later(whyOf, field) });
  if (doubt) say(note, doubt);
  else if (field?.corrected) say(note, "corrected_by", { by: later(who, field.corrected.by) });
  else if (taughtBy(field)) say(note, "as_confirmed", { n: taughtBy(field) });
  else if (isPrinted) say(note, "printed_as", { text: field.text });
  else quote(note, "");
}

const UNSURE = 0.7; // of a value's score

/** Doubtful fields, each with the key of its reason. */
function doubtsOf(mine) {
  const { fields, valid } = ours(mine);
  const doubts = new Map();
  for (const [name, field] of Object.entries(fields)) {
    if (name in LIST_COLUMNS) continue;
    if (field.valid === false) doubts.set(name, "doubt_check_digits");
    else if (field.ambiguous) doubts.set(name, "doubt_ambiguous");
    else if (field.source !== "person" && field.score < UNSURE) doubts.set(name, "doubt_unsure");
  }
  for (const { equation } of valid.differences) {
    for (const name of equation.match(/[A-Z][A-Za-z]+/g) ?? []) if (name in fields && !doubts.has(name)) doubts.set(name, "doubt_arithmetic");
  }
  return doubts;
}

const problemsOf = (mine) => (mine.answer.problems ?? []).filter((one) => (one.document ?? mine.index) === mine.index);

/** What was checked: arithmetic, check digits, duplicates. */
function drawChecks(mine) {
  const { valid, confirmed } = ours(mine);
  listChecks(problemsOf(mine), valid.totals === true);
  say(find("validation-facts"), confirmed ? "state_confirmed" : "state_to_review");
  find("undo").disabled = !mine.undone.length;
}

function listChecks(problems, agree) {
  const items = problems.map((one) => checkOf(one, "bad", "cross"));
  if (agree) items.unshift(checkOf({ code: "totals_agree" }, "good", "check"));
  find("validation-checks").replaceChildren(...items);
}

/** Check what is being typed, before it is sent. */
function recheck(mine, input) {
  const { list, row, column, name } = input.dataset;
  const value = valueOf(column ?? name, input.value);
  const fields = { ...ours(mine).fields, [list ?? name]: list ? { value: typedRows(mine, list, Number(row), column, value) } : { ...ours(mine).fields[name], value } };
  const sums = newDifferences(mine, fields);
  const isRight = list ? null : checkDigits(name, input.value);
  const others = duplicatesOf(mine, fields);
  const kept = problemsOf(mine).filter(({ code, field }) => !(
    (code === "arithmetic" && sums) || (code === "check_digits" && field === name && isRight !== null) || (code === "duplicate" && others)
  ));
  const found = [
    ...(sums ?? []).map((one) => ({ code: "arithmetic", ...one })),
    ...(isRight === false ? [{ code: "check_digits", field: name, value: input.value }] : []),
    ...(others ?? []).map((other) => ({ code: "duplicate", other })),
  ];
  const added = found.filter((one) => !kept.some(({ code, field }) => code === one.code && field === one.field && code === "check_digits"));
  listChecks([...added, ...kept], sums ? !sums.length : ours(mine).valid.totals === true);
  if (isRight !== null) tellNote(input.closest(".check-field"), name, fields[name], isRight ? null : "doubt_check_digits");
}

function typedRows(mine, list, row, column, value) {
  const rows = [...(ours(mine).fields[list]?.value ?? [])];
  rows[row] = { ...rows[row], [column]: { ...rows[row]?.[column], value } };
  return rows.filter(Boolean);
}

/** Sums that do not hold, without gaps that the service has accepted: charges that are no field, rounding. */
function newDifferences(mine, fields) {
  const gap = ({ expected, printed }) => Number(expected) - Number(printed);
  const told = new Set(ours(mine).valid.differences.map(({ equation }) => equation));
  const accepted = new Map((differences(ours(mine).fields) ?? []).filter(({ equation }) => !told.has(equation)).map((one) => [one.equation, gap(one)]));
  return differences(fields)?.filter((one) => Math.abs(gap(one) - (accepted.get(one.equation) ?? 0)) > 0.025);
}

/** Others of the ledger with the same supplier, number and total; null where the ledger is not known. */
function duplicatesOf(mine, fields) {
  const rows = mine.others();
  if (!rows.length) return null;
  const plain = (text) => (text ?? "").toUpperCase().replace(/[^A-Z0-9]/g, "");
  const key = (id, number, total) => (id && number && total ? [plain(id).replace(/^ES/, ""), plain(number), Number(total)].join() : null);
  const own = key(fields.VendorTaxId?.value, fields.InvoiceId?.value, fields.InvoiceTotal?.value);
  const same = rows.filter((row) => own && row.document_id !== mine.id && key(row.tax_id, row.number, row.total) === own);
  return same.slice(0, 1).map((row) => `${row.document_id}:${row.index}`);
}

function checkOf({ code, field, other, ...values }, kind, name) {
  const amounts = Object.fromEntries(["expected", "printed"].map((key) => [key, later(localAmount, values[key])]));
  const words = { ...values, ...amounts, field: field ? later(fieldName, field) : "", equation: later(equationIn, values.equation ?? "") };
  const text = say(make("span"), `problem_${code}`, words);
  const link = other ? [" ", say(make("a", { href: `#document=${other}` }), "open_other")] : [];
  return make("li", { class: `check ${kind}` }, icon(name), text, ...link);
}

// --- changing

function activate(mine, input) {
  mine.active = input;
  for (const one of find("validation-form").querySelectorAll(".active")) one.classList.remove("active");
  input.closest(".check-field, tr")?.classList.add("active");
  input.select(); // what is typed replaces it
  light(placeOf(mine, input));
}

function placeOf(mine, input) {
  const { list, row, column, name } = input.dataset;
  return list ? ours(mine).fields[list]?.value[Number(row)]?.[column] : ours(mine).fields[name];
}

/** Fill the active input with words of a page, and go on in it. */
function fill(mine, { text, ...place }) {
  const input = mine.active?.isConnected ? mine.active : firstInput();
  input.value = text;
  input.focus({ preventScroll: true });
  commit(mine, input, place);
}

/** Send what an input says now, if that is a value and another one. */
function commit(mine, input, place = {}) {
  const { list, row, column, name } = input.dataset;
  const value = valueOf(column ?? name, input.value);
  const invalid = value === null && input.value.trim() !== "";
  input.setAttribute("aria-invalid", String(invalid));
  if (invalid) return announce(`not_${kindOf(column ?? name)}`, { text: input.value });
  if (value !== null) input.value = shownValue(column ?? name, value);
  if (list) return commitCell(mine, { list, row: Number(row), column }, value, place);
  if (isSame(name, before(mine, name)?.value ?? null, value) && !place.page) return undefined;
  return change(mine, name, value === null ? null : { value, ...place });
}

/** Whether two values say the same: 605 and 605.00 do. */
const isSame = (name, one, other) => one === other || (one !== null && other !== null && shownValue(name, one) === shownValue(name, other));

function commitCell(mine, { list, row, column }, value, place) {
  const rows = structuredClone(bareRows(mine, list));
  while (rows.length <= row) rows.push({});
  if (isSame(column, rows[row][column]?.value ?? null, value) && !place.page) return undefined;
  if (value === null) delete rows[row][column];
  else rows[row][column] = { value, ...place };
  return change(mine, list, rows);
}

const PLACE = ["page", "boxes", "start", "end"];

function bare(field) {
  if (!field) return null;
  const place = PLACE.filter((key) => field[key] !== null && field[key] !== undefined).map((key) => [key, field[key]]);
  return { value: field.value, ...Object.fromEntries(place) };
}

const bareRows = (mine, list) => {
  if (mine.pending.has(list)) return structuredClone(mine.pending.get(list) ?? []);
  const rows = ours(mine).fields[list]?.value ?? [];
  return rows.map((row) => Object.fromEntries(Object.entries(row).map(([column, cell]) => [column, bare(cell)])));
};

/** A field as it will be when what is on its way has arrived. */
const before = (mine, name) => {
  if (mine.pending.has(name)) return mine.pending.get(name);
  return name in LIST_COLUMNS ? (name in ours(mine).fields ? bareRows(mine, name) : null) : bare(ours(mine).fields[name]);
};

function listActs(mine) {
  return {
    add: (list) => {
      const rows = bareRows(mine, list);
      const [first] = LIST_COLUMNS[list];
      addRow(mine, list, rows.length, first);
    },
    split: (list, row) => splitRow(mine, list, row),
    merge: (list, row) => mergeRow(mine, list, row),
    remove: (list, row) => change(mine, list, bareRows(mine, list).filter((_, index) => index !== row), true),
  };
}

/** Two lines of one: the text behind the cursor begins the new one, the amounts stay. */
function splitRow(mine, list, row) {
  const rows = bareRows(mine, list);
  if (!rows[row]) return undefined;
  const input = find("validation-form").querySelector(`[data-list="${list}"][data-row="${row}"].value-text`);
  const { column } = input.dataset;
  const [before, behind] = [input.value.slice(0, input.selectionStart).trim(), input.value.slice(input.selectionStart).trim()];
  const added = behind && before ? behind : input.value.trim();
  rows[row][column] = { ...rows[row][column], value: before || input.value.trim() };
  rows.splice(row + 1, 0, added ? { [column]: { value: added } } : {});
  return change(mine, list, rows.filter((one) => Object.keys(one).length), true);
}

/** One line of two: texts are joined, and what one of them lacks comes from the other. */
function mergeRow(mine, list, row) {
  const rows = bareRows(mine, list);
  const [first, second] = [rows[row], rows[row + 1]];
  if (!first || !second) return undefined;
  for (const [column, cell] of Object.entries(second)) {
    if (column === "Description" && first[column]) first[column] = { value: `${first[column].value} ${cell.value}` };
    else first[column] ??= cell;
  }
  rows.splice(row + 1, 1);
  return change(mine, list, rows, true);
}

/** An empty row to write into; it is sent with its first value. */
function addRow(mine, list, row, column) {
  const body = find(`list-${list}`);
  body.append(body.rowOf(row, {}));
  body.querySelector(`[data-row="${row}"][data-column="${column}"]`)?.focus();
}

/** Change one field, and remember how it was. */
function change(mine, name, value, redraw = name in LIST_COLUMNS) {
  mine.undone.push([name, before(mine, name)]);
  mine.taken_ms = -LOOK_MS; // who goes on has looked
  return send(mine, name, value, redraw);
}

function takeBack(mine) {
  const last = mine.undone.pop();
  if (last) send(mine, ...last, true).then(() => announce("undone", { field: fieldName(last[0]) }));
}

/** Send a change behind those that are on their way; what is checked is shown anew. */
function send(mine, name, value, redraw) {
  const { era } = mine;
  mine.pending.set(name, value);
  mine.sent = mine.sent.then(() => guarded(mine, async () => {
    if (era !== mine.era) return; // made on a state that somebody else has changed
    const body = { document: mine.index, revision: mine.answer.revision, fields: { [name]: value } };
    try {
      mine.answer = await correct(mine.id, body, mine.control.signal);
    } finally {
      if (mine.pending.get(name) === value) mine.pending.delete(name);
    }
    if (mine !== now) return;
    if (redraw) keepFocus(() => drawFields(mine));
    else retell(mine, name);
    tellResult(mine);
  }));
  return mine.sent;
}

function retell(mine, changed) {
  const doubts = doubtsOf(mine);
  for (const node of find("validation-form").querySelectorAll(".check-field")) {
    const { field: name } = node.dataset;
    tellNote(node, name, ours(mine).fields[name], doubts.get(name));
    if (name === changed) node.querySelector("button.small")?.remove();
  }
  drawChecks(mine);
  if (mine.active?.dataset.name === changed) light(placeOf(mine, mine.active));
}

function keepFocus(act) {
  const { id } = document.activeElement ?? {};
  act();
  if (id) find(id)?.focus({ preventScroll: true });
}

function tellResult(mine) {
  const wrong = find("validation-checks").querySelectorAll(".bad").length;
  announce(wrong ? "checked_wrong" : ours(mine).valid.totals ? "checked_agree" : "checked", { n: wrong });
}

const LOOK_MS = 1000; // what others have just changed is not confirmed by a key that was on its way

/** Confirm the document as it is shown, then go on to the next. */
async function settle(mine) {
  if (performance.now() - mine.taken_ms < LOOK_MS) return announce("changed_look");
  mine.failed = false;
  for (const input of inputs()) if (isTyping(mine, input)) commit(mine, input); // what could not be sent before, too
  if (find("validation-form").querySelector('[aria-invalid="true"]')) return announce("confirm_invalid");
  await mine.sent;
  if (mine !== now || mine.failed) return undefined;
  return guarded(mine, async () => {
    mine.answer = await confirm(mine.id, { document: mine.index, revision: mine.answer.revision }, mine.control.signal);
    if (mine !== now) return;
    announce("confirmed", { name: mine.answer.filename });
    await mine.next(mine.id, mine.index);
  });
}

/** Run `act`; what goes wrong is told. Somebody else's change is shown, so that the next one is made on it. */
async function guarded(mine, act) {
  try {
    mine.failed = false;
    await act();
    if (mine === now && !mine.failed) clear("problem", INTO);
  } catch (error) {
    if (mine !== now || error instanceof GivenUp) return;
    if (!(error instanceof Problem || error instanceof Lost)) throw error;
    mine.failed = true;
    clear("problem", INTO);
    showProblem(error instanceof Problem ? error : new Problem({ code: "lost" }), { ...INTO, about: "correction" });
    if (error.status !== 409) return;
    Object.assign(mine, { undone: [], era: mine.era + 1 });
    mine.pending.clear();
    mine.answer = await readDocument(mine.id, mine.control.signal);
    if (mine === now) drawFields(mine);
  }
}

const LIST_KEYS = { KeyN: "add", KeyS: "split", KeyJ: "merge", Delete: "remove" };

function onKey(mine, event) {
  const { target } = event;
  const act = event.altKey && target.dataset.list && LIST_KEYS[event.code];
  if (act) {
    event.preventDefault();
    if (isTyping(mine, target)) commit(mine, target);
    mine.sent.then(() => listActs(mine)[act](target.dataset.list, Number(target.dataset.row)));
  } else if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    if (!event.repeat) settle(mine);
  } else if (event.key === "Enter" && target.matches("input")) {
    event.preventDefault();
    commit(mine, target);
    const all = inputs();
    (all[all.indexOf(target) + 1] ?? find("confirm")).focus();
  } else if (event.key === "z" && (event.ctrlKey || event.metaKey) && !isTyping(mine, target)) {
    event.preventDefault();
    takeBack(mine);
  } else if (event.key === "Escape" && !isTyping(mine, target)) {
    location.hash = "#ledger";
  } else if (event.key === "Escape") {
    target.value = shownValue(target.dataset.column ?? target.dataset.name, placeOf(mine, target)?.value ?? "");
    target.setAttribute("aria-invalid", "false");
    drawChecks(mine);
  }
}

/** Whether an input holds what was not sent yet: the browser's own undo is for that. */
function isTyping(mine, target) {
  if (!target.matches("input")) return false;
  return target.value !== shownValue(target.dataset.column ?? target.dataset.name, placeOf(mine, target)?.value ?? "");
}
