// The page: a document comes in, becomes a job of the service, and what it says is shown as it is read.

import { GivenUp, Lost, Problem, call, keysFrom, persist, problemFrom, upload } from "./connection.js";
import { find } from "./dom.js";
import { showDownloads, waitForDownloads } from "./downloads.js";
import { goBack, showEntities, waitForEntities } from "./entities.js";
import { showFields, waitForFields } from "./fields.js";
import { follow } from "./events.js";
import { choose, formOf, receive, spokenLanguage } from "./intake.js";
import { endMinutes, isLong, isSpoken, openMinutes, putMinute, soundsSpoken } from "./heard_job.js";
import { hear, isRecording } from "./hearing.js";
import { bindStatic, clock, language, preferred, quote, say, speak, t } from "./language.js";
import { announce, clear, showFailedPages, showNotice, showProblem, showWait } from "./notices.js";
import { showOverview, waitForOverview } from "./overview.js";
import { markEntities, putPage, redrawPages, reset, startPages } from "./pages.js";
import { hideProgress, showProgress, startClock } from "./progress.js";
import { dropRecording, startRecorder } from "./recorder.js";
import { putText, resetText, setWholeText } from "./reading.js";
import { offerRereading } from "./reread.js";
import { askSecret, isLocked, keepPassword } from "./secret.js";
import "./speech_strings.js";
import { deleteDocument, documentOf, documentPath, jobOf, picturePath, readDocument, readFile, readOriginal } from "./stored_document.js";
import { showTables, waitForTables } from "./tables.js";
import { select, startTabs } from "./tabs.js";
import { closeTranscript, endTranscript, heardSome, lengthOf, openTranscript, putSegment } from "./transcript.js";
import { addToView, leaveList, nameDocument, showReading, startViews } from "./views.js";

const LIVE = ["queued", "running"];
const LARGE_BYTES = 64 * 1024; // smaller ones are sent before an answer can come
const PLAYED_BYTES = 100 * 1024 * 1024; // of a stored recording that is fetched to be played
const OF_PRINT = { pages: "", source: "", engine: "" }; // wishes that a recording has no use for

// What is shown now. A new document gets a new one; what still runs for the old is stopped by its control.
let now = reading(null);

/** A document that is read: with `wishes` instead of the options, and in place of the one `replaced`. */
function reading(file, { password = null, wishes = {}, replaced = null } = {}) {
  const hears = Boolean(file && isRecording(file));
  return { file, password, wishes, replaced, hears, job: null, id: null, keeping: null, control: new AbortController() }; // id: as it is stored
}

const path = (job, rest = "") => `jobs/${encodeURIComponent(job.id)}${rest}`;
const waits = () => ({
  signal: now.control.signal,
  onWait: showWait,
  onBack: () => {
    clear("wait");
    announce("back");
  },
});

function begin(mine, name) {
  now.control.abort();
  now = mine;
  clear();
  hideProgress();
  startClock();
  dropRecording();
  closeTranscript();
  showReading({ isOpen: true, wishes: false });
  find("check").hidden = true;
  find("result").hidden = true;
  quote(find("file-name"), name);
  nameDocument({ title: `${name} · FinancIA` });
  if (mine.file) say(find("file-facts"), "facts_waiting", { bytes: mine.file.size });
  buttons([]);
}

/** Read a file from the start. */
async function read(mine) {
  leaveList();
  begin(mine, mine.file.name || "clipboard.png");
  find("file-name").focus();
  await guarded(mine, async () => {
    const asJob = !mine.hears || (await isLong(mine.file));
    if (mine.control.signal.aborted) throw new GivenUp("another document was begun");
    await (asJob ? send(mine) : listen(mine));
  });
}

/** Delete a document with its job. What is gone already is as it should be. */
async function drop({ job, id }) {
  if (job) await call(path(job), { method: "DELETE" }).catch(absent);
  if (id) await deleteDocument(id).catch(absent);
}

/** Delete one that another replaces: a failure is none to tell. */
async function dropQuietly(mine) {
  try {
    await drop(mine);
  } catch (error) {
    if (!(error instanceof Problem || error instanceof Lost || error instanceof GivenUp)) throw error;
  }
}

async function send(mine) {
  const onSent = (part) => showProgress(mine.hears ? "uploading_recording" : "uploading", { part }, part);
  onSent(0);
  buttons(["cancel"]);
  // A refusal in the middle of a long upload reaches browsers as a broken line, so the key is proved first.
  if (mine.file.size > LARGE_BYTES) await persist(() => call("models", { signal: mine.control.signal }), waits());
  const job = await newJob(mine, onSent);
  if (mine.replaced) await dropQuietly(mine.replaced);
  await watch(mine, job);
}

/** The job of a file, which is kept with what is read; a key that may not store anything has it read alone. */
async function newJob(mine, onSent) {
  const form = formOf(mine.file, mine.password, mine.hears ? OF_PRINT : mine.wishes);
  const attempt = () => upload("jobs", form, { onSent, signal: mine.control.signal });
  form.set("store", "true");
  const job = await persist(attempt, waits()).catch((error) => {
    if (error.code !== "forbidden") throw error;
    form.delete("store");
    return persist(attempt, waits());
  });
  if (form.has("store")) mine.id = documentOf(job);
  if (mine.id && mine.password) keepPassword(mine.id, mine.password);
  return job;
}

/**
 * Keep a recording that is being heard: its job joins what the service hears already, and goes on if the page is
 * closed. Returns why it is not kept, or null.
 */
async function keepHeard(mine) {
  try {
    mine.job = await newJob(mine, () => {});
    if (mine === now) nameDocument({ hash: addressOf(mine) });
    return null;
  } catch (error) {
    if (error instanceof Problem || error instanceof Lost || error instanceof GivenUp) return error;
    throw error;
  }
}

const addressOf = ({ id, job }) => (id ? `#document=${id}` : `#job=${encodeURIComponent(job.id)}`);

/** Send a recording, whose transcript grows while it is made; it is kept as soon as the service has it. */
async function listen(mine) {
  nameDocument({ hash: "" });
  buttons(["cancel"]);
  openTranscript(mine.file);
  const onSent = (part) => {
    if (part < 1) return showProgress("uploading_recording", { part }, part);
    showProgress("hearing_queued", {});
    mine.keeping ??= keepHeard(mine);
  };
  const onSegment = (index, segment) => {
    putSegment(index, segment);
    const { end, duration: total } = segment;
    const values = { done: clock(end), total: clock(total ?? 0) };
    showProgress(total ? "hearing" : "hearing_unknown", values, total ? Math.min(1, end / total) : null);
  };
  onSent(0);
  const done = await hear(mine.file, { language: spokenLanguage(), onSent, onSegment, ...waits() });
  hideProgress();
  endTranscript(done);
  say(find("file-facts"), "facts_heard", { length: lengthOf(done), bytes: mine.file.size });
  buttons([]);
  announce("heard", { length: lengthOf(done) });
  const refusal = (await mine.keeping) && (await keepHeard(mine)); // what the queue had no room for has another chance
  mine.keeping = null;
  if (mine !== now) return;
  if (refusal) showProblem(refusal, { title: "not_kept" });
  else buttons(["forget"]);
}

/** Go on with a job that the service has: one just sent, or the one in the address after a reload. */
async function watch(mine, job) {
  mine.job = job;
  nameDocument({ hash: addressOf(mine) });
  quote(find("file-name"), job.file?.name ?? find("file-name").textContent);
  prepare((number) => path(job, `/pages/${number}`));
  hears(mine, mine.hears || soundsSpoken(job));
  buttons(LIVE.includes(job.status) ? ["cancel"] : []);
  tell(mine, job.progress);
  const onEvent = (name, data) => {
    if (name === "progress") tell(mine, data);
    else if (name === "page") showPage(mine, data);
    else if (name === "fields" && data) showEarly(mine, data);
  };
  await follow(path(job, "/events"), { ...waits(), onEvent });
  showProgress("collecting", {});
  const get = async () => (await call(path(job), { signal: mine.control.signal })).json();
  await end(mine, await persist(get, waits()));
}

function prepare(pictureOf) {
  reset(pictureOf, goBack);
  resetText();
  waitForOverview();
  waitForFields();
  waitForTables();
  waitForEntities();
  waitForDownloads();
  select("overview");
}

/** Show a transcript instead of pages, or no longer: what a file is its pages tell, and before them its name. */
function hears(mine, spoken) {
  if (spoken) openMinutes(mine.file, mine.job?.file?.name ?? mine.file?.name ?? "");
  else if (mine.hears) closeTranscript();
  mine.hears = spoken;
}

function showPage(mine, page) {
  if (isSpoken(page) !== mine.hears) hears(mine, isSpoken(page));
  if (mine.hears) return putMinute(page);
  find("result").hidden = false;
  putPage(page);
  putText(page.number, page.text ?? "");
}

/** The fields, while entities and the summary are still looked for. */
function showEarly(mine, found) {
  mine.knowsFields = showFields(found);
  if (mine.knowsFields) select("fields");
}

/** Until the first page is done the bar only moves: of a single page there is no share to show. */
function tell(mine, progress) {
  const { stage, pages_done: done, pages_total: total } = progress ?? { stage: "queued" };
  if (mine.hears && stage === "reading") {
    const minute = Math.min(done + 1, total ?? Infinity);
    showProgress(total ? "hearing_minutes" : "hearing_minutes_unknown", { done: minute, total }, done && total ? done / total : null);
  } else if (stage === "reading") showProgress(total ? "reading" : "reading_unknown", { done, total }, done && total ? done / total : null);
  else if (stage !== "done") showProgress(stage, {});
}

async function end(mine, job) {
  mine.job = job;
  hideProgress();
  if (job.result) showResult(mine, job.result, { name: job.file?.name, path: path(job), isWhole: job.status === "succeeded" });
  buttons(["forget", ...(mine.file && job.status !== "succeeded" ? ["again"] : [])]);
  if (job.status === "failed") throw problemFrom(job.error);
  if (job.status === "cancelled") {
    showNotice("ended", !job.result?.pages?.length ? "cancelled" : mine.hears ? "heard_partly" : "cancelled_partly");
    announce("cancelled");
    return;
  }
  if (mine.hears) return;
  const reread = (wishes) => read(reading(mine.file, { password: mine.password, wishes, replaced: mine }));
  await offerRereading(job.result, { signal: mine.control.signal, reread: mine.file && reread });
}

/** Show what was read; `path` is where it is in other formats. */
function showResult(mine, result, { name = "document", path, isWhole }) {
  if (result.kind === "audio") {
    if (!mine.hears) hears(mine, true);
    const known = endMinutes(result);
    say(find("file-facts"), "{length}", { length: lengthOf(known) });
    if (isWhole) announce("heard", { length: lengthOf(known) });
    return;
  }
  const failed = result.failed_pages ?? [];
  find("result").hidden = !result.pages?.length;
  for (const page of result.pages ?? []) showPage(mine, page);
  if (typeof result.text === "string") setWholeText(result.text);
  say(find("file-facts"), "facts", { kind: result.kind.toUpperCase(), pages: result.page_count });
  showFailedPages(failed);
  showOverview(result);
  if (showFields(result) && !mine.knowsFields) select("fields"); // of an invoice that is what people look for
  showTables(result.tables);
  showEntities(result.entities, result.coverage ?? 1);
  markEntities(result.entities ?? []);
  showDownloads(path, name);
  find("check").hidden = !(mine.id && isWhole);
  find("check").href = `#document=${mine.id}:0`;
  if (!isWhole) return;
  const pages = result.pages.length;
  announce(failed.length ? "done_partly" : "done", { pages, failed: failed.length });
}

function buttons(shown) {
  for (const id of ["cancel", "again", "forget"]) find(id).hidden = !shown.includes(id);
  if (shown.includes("forget") && now.id) offerCollections(now);
  else find("collect").replaceChildren();
}

/** A stored document can be added to collections. */
async function offerCollections(mine) {
  const { collecting } = await import("./collecting.js");
  if (mine === now) find("collect").replaceChildren(collecting(() => [mine.id], { into: "notices" }));
}

/** Run `act` for the document `mine`; whatever goes wrong is told, unless another document took its place. */
async function guarded(mine, act) {
  try {
    await act();
  } catch (error) {
    if (mine !== now) return;
    clear("wait");
    hideProgress();
    if (isLocked(error)) await unlock(mine, error);
    else if (error instanceof GivenUp) settle(mine);
    else if (error instanceof Problem || error instanceof Lost) fail(mine, error);
    else {
      fail(mine, new Problem({ detail: String(error) }));
      throw error;
    }
  }
}

async function unlock(mine, error) {
  if (!mine.file) {
    fail(mine, error);
    showNotice("choose", "choose_again");
    return;
  }
  const password = await askSecret("password", error.code === "wrong_password", mine.file.name);
  if (mine !== now) return;
  if (password === null) fail(mine, error);
  else await guarded(mine, () => send(Object.assign(mine, { password })));
}

function fail(mine, error) {
  showProblem(error, { about: mine.hears ? "audio" : "" });
  if (heardSome()) showNotice("ended", "heard_until");
  if (mine.file && find("result").hidden && !heardSome()) {
    showReading({ wishes: true }); // for "try again" with other options
    find("heard").hidden = true;
  }
  if (error.code === "invalid_field") find("wishes").querySelector("details").open = true;
  settle(mine);
}

function settle(mine) {
  hideProgress();
  if (heardSome()) endTranscript(null);
  const isOver = mine.job ? !LIVE.includes(mine.job.status) : mine.id;
  buttons([...(mine.file ? ["again"] : []), ...(isOver ? ["forget"] : [])]);
}

async function cancel() {
  const mine = now;
  find("cancel").hidden = true;
  if (!mine.job || mine.keeping) {
    mine.control.abort();
    showNotice("ended", heardSome() ? "heard_partly" : "cancelled");
    await mine.keeping;
    if (mine.job) await dropQuietly(mine);
    Object.assign(mine, { job: null, id: null, keeping: null });
    if (mine === now) nameDocument({ hash: "" });
    return;
  }
  await guarded(mine, () => persist(() => call(path(mine.job), { method: "DELETE" }), waits()));
}

async function forget() {
  const mine = now;
  await guarded(mine, async () => {
    await persist(() => drop(mine), waits());
    startAnew();
    announce("forgotten");
  });
}

function startAnew() {
  now.control.abort();
  now = reading(null);
  hideProgress();
  nameDocument({ hash: "", title: "FinancIA" });
  clear();
  closeTranscript();
  reset(() => "", goBack);
  showReading({ isOpen: false });
  find("choose").focus();
}

/** After a reload the address still names the document, or the job of one that is not kept: nothing is lost. */
async function resume() {
  const [, kind, id] = /^#(job|document)=([\w.%-]{1,200})$/.exec(location.hash) ?? [];
  if (!id) return;
  const mine = reading(null);
  begin(mine, "…");
  await guarded(mine, async () => {
    if (kind === "document") await reopen(mine, decodeURIComponent(id));
    else await goOn(mine, decodeURIComponent(id));
  });
}

async function goOn(mine, id) {
  const get = async () => (await call(path({ id }, "?result=false"), { signal: mine.control.signal })).json();
  const known = await persist(get, waits());
  startClock(known.created_at);
  await watch(mine, known);
}

/** Show a stored document, or what is read of it so far. */
async function reopen(mine, id) {
  const { signal } = mine.control;
  const answer = await persist(() => readDocument(id, signal).catch(absent), waits());
  mine.id = id;
  if (!answer) return goOn(mine, jobOf(id)).catch((error) => readSent(mine, id, error));
  const { filename: name, kind, bytes } = answer;
  quote(find("file-name"), name);
  nameDocument({ title: `${name} · FinancIA` });
  prepare((number) => picturePath(id, number));
  if (kind === "audio" && bytes <= PLAYED_BYTES) mine.file = await persist(() => readOriginal(id, name, signal), waits());
  buttons(["forget"]);
  showResult(mine, answer, { name, path: documentPath(id), isWhole: true });
}

/** Make a document of a file that is kept without one: of a collection that a program filled. */
async function readSent(mine, id, error) {
  const isNone = error.status === 404 && !mine.job;
  const file = isNone && (await persist(() => readFile(id, mine.control.signal).catch(absent), waits()));
  if (!file) throw error;
  await read(reading(file));
}

function absent(error) {
  if (error.status !== 404) throw error;
  return null;
}

/** Read the invoice that comes with the page. */
async function readExample() {
  const response = await fetch("page/example.pdf").catch(() => null);
  if (!response?.ok) return showProblem(new Lost(t("example_name")), { into: "intake-notices" });
  return read(reading(new File([await response.blob()], t("example_name"), { type: "application/pdf" })));
}

function startLanguages() {
  const press = () => {
    for (const button of document.querySelectorAll("[data-language]")) {
      button.setAttribute("aria-pressed", String(button.dataset.language === language()));
    }
  };
  for (const button of document.querySelectorAll("[data-language]")) {
    button.addEventListener("click", () => {
      speak(button.dataset.language, { keep: true });
      redrawPages();
      press();
    });
  }
  speak(preferred());
  press();
}

bindStatic();
startLanguages();
startTabs();
startPages();
keysFrom((wrong) => askSecret("key", wrong));
receive((files) => addToView(files) || read(reading(files[0])));
startRecorder((file) => read(reading(file)));
find("example").addEventListener("click", readExample);
find("cancel").addEventListener("click", cancel);
find("again").addEventListener("click", () => read(reading(now.file)));
find("forget").addEventListener("click", forget);
find("new").addEventListener("click", () => {
  startAnew();
  choose();
});
resume();
startViews(resume);
