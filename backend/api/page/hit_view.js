// A hit where it stands: its page with the passage and the words of the query marked, or the text around it.

import { downloadFile, picturePath, readChunks } from "./collections.js";
import { GivenUp, Lost, Problem } from "./connection.js";
import { find, icon, make } from "./dom.js";
import { showRecording } from "./hit_recording.js";
import { textOf } from "./hits.js";
import { clock, quote, say } from "./language.js";
import { drawPassage, drawSpot, drawing } from "./marks.js";
import { LazyPicture } from "./pictures.js";
import { marked } from "./snippets.js";

const ZOOMS = [0.75, 1, 1.5, 2];
const WIDE = matchMedia("(min-width: 62.5rem)"); // beside the hits; below, over everything

let pictures = [];
let control = new AbortController();
let zoom = ZOOMS.indexOf(1);
let steps = { move: () => {}, leave: () => {} };
let shown = null;

/** The dialog, to be put into the page; `move(step)` goes to another hit, `leave()` is called when it was closed. */
export function makeHitView(acts) {
  steps = acts;
  const button = (id, key, name, onclick) => say(make("button", { type: "button", class: "plain", id, onclick }, icon(name)), key, {}, "aria-label");
  const tools = make(
    "div",
    { class: "hit-tools", role: "toolbar" },
    button("hit-previous", "hit_previous", "left", () => steps.move(-1)),
    make("span", { id: "hit-number", class: "number quiet" }),
    button("hit-next", "hit_next", "right", () => steps.move(1)),
    button("hit-smaller", "zoom_out", "minus", () => zoomTo(zoom - 1)),
    button("hit-larger", "zoom_in", "plus", () => zoomTo(zoom + 1)),
    button("hit-download", "hit_download", "download", download),
    button("hit-close", "close", "cross", () => closeHit()),
  );
  say(tools, "hit_tools", {}, "aria-label");
  const head = make("div", { class: "hit-head" }, make("h2", { id: "hit-title", tabindex: "-1" }), tools);
  const scroll = make("div", { id: "hit-scroll", class: "hit-scroll", tabindex: "0", role: "region" }, make("div", { id: "hit-body", class: "hit-body" }));
  say(scroll, "hit_region", {}, "aria-label");
  const dialog = make("dialog", { id: "hit-view", class: "hit-view", "aria-labelledby": "hit-title", onkeydown: onKey }, head, scroll);
  dialog.addEventListener("cancel", (event) => {
    event.preventDefault();
    closeHit();
  });
  WIDE.addEventListener("change", () => dialog.open && (dialog.close(), present(dialog)));
  return dialog;
}

/** Show a hit of the store; `takesFocus` where the reader asked for it. */
export function showHit(store, hit, { index, count, takesFocus }) {
  const dialog = find("hit-view");
  shown = { store, hit };
  const spoken = Number.isFinite(hit.start_s);
  const place = { name: hit.filename, page: hit.page ?? 0, time: clock(hit.start_s ?? 0) };
  say(find("hit-title"), spoken ? "hit_title_spoken" : hit.page ? "hit_title" : "hit_title_text", place);
  for (const id of ["hit-smaller", "hit-larger"]) find(id).hidden = spoken;
  say(find("hit-number"), "hit_number", { n: index + 1, count });
  find("hit-previous").disabled = index === 0;
  find("hit-next").disabled = index === count - 1;
  emptyBody();
  const focused = document.activeElement;
  if (!dialog.open) present(dialog);
  const { signal } = control;
  if (spoken) showRecording(store, hit, { body: find("hit-body"), signal, plays: takesFocus, fail: (error) => steps.fail(error), center });
  else if (hit.pages?.length || hit.page) showPages(hit);
  else showText(store, hit, signal);
  if (spoken) find("hit-body").style.width = "100%";
  else setZoom(zoom);
  if (takesFocus && !dialog.contains(focused)) find("hit-title").focus({ preventScroll: true });
  else if (takesFocus && focused.disabled) find("hit-title").focus({ preventScroll: true });
  else if (!takesFocus) focused?.focus({ preventScroll: true });
}

export const isModal = () => !WIDE.matches;
export const isOpen = () => find("hit-view").open;

/** Close it, if it is open, and tell. */
export function closeHit({ quietly = false } = {}) {
  const dialog = find("hit-view");
  emptyBody();
  if (!dialog.open) return;
  dialog.close();
  if (!quietly) steps.leave();
}

function present(dialog) {
  if (WIDE.matches) dialog.show();
  else dialog.showModal();
}

function emptyBody() {
  control.abort();
  control = new AbortController();
  for (const picture of pictures) picture.leave();
  pictures = [];
  find("hit-body").replaceChildren();
}

function showPages(hit) {
  const numbers = hit.pages?.length ? hit.pages : [hit.page];
  const sheets = numbers.map((number) => sheet(hit, number));
  find("hit-body").replaceChildren(...sheets);
  for (const picture of pictures) picture.enter();
  const first = firstMark();
  if (first) center(first);
  else find("hit-scroll").scrollTop = 0;
}

function sheet(hit, number) {
  const image = say(make("img", { hidden: true, draggable: "false" }), "page_picture", { page: number }, "alt");
  const surface = make("div", { class: "surface" }, image);
  const size = (hit.page_sizes ?? []).find(({ page }) => page === number);
  surface.style.aspectRatio = size?.width > 0 && size?.height > 0 ? `${size.width} / ${size.height}` : "1 / 1.4142";
  pictures.push(new LazyPicture(image, `${picturePath(hit.file_id, number)}?dpi=130`));
  if (size?.width > 0 && size?.height > 0) {
    const on = (places) => (places ?? []).filter((place) => place.page === number).map((place) => place.box);
    const words = (hit.highlights ?? []).flatMap((one) => on(one.boxes));
    surface.append(drawing(size));
    surface.lastElementChild.append(drawPassage(on(hit.boxes)), drawSpot(words));
  }
  return surface;
}

/** The chunk of a plain text between its neighbours. */
async function showText(store, hit, signal) {
  const passage = make("span", { class: "passage-text" }, ...marked(textOf(hit), hit.highlights ?? []));
  const text = make("div", { class: "hit-plain", dir: "auto" }, passage);
  find("hit-body").replaceChildren(text);
  find("hit-scroll").scrollTop = 0;
  try {
    const chunks = await readChunks(store, hit.file_id, signal);
    const at = chunks.findIndex((chunk) => chunk.start === hit.start && chunk.text === textOf(hit));
    if (signal.aborted || at < 0) return;
    const [before, after] = [chunks[at - 1], chunks[at + 1]];
    if (before) text.prepend(quote(make("span", { class: "quiet" }), upTo(before, hit.start).trimEnd()));
    if (after) text.append(quote(make("span", { class: "quiet" }), from(after, hit.end).trimStart()));
    center(passage.querySelector("mark") ?? passage);
  } catch (error) {
    if (!(error instanceof Problem || error instanceof Lost || error instanceof GivenUp)) throw error; // the passage itself is there
  }
}

/** What of a chunk stands before, or behind, a place in the file's text: neighbours may overlap. */
const upTo = (chunk, end) => [...chunk.text].slice(0, Math.max(0, end - chunk.start)).join("");
const from = (chunk, start) => [...chunk.text].slice(Math.max(0, start - chunk.start)).join("");

function center(node) {
  const scroll = find("hit-scroll");
  const [area, box] = [scroll.getBoundingClientRect(), node.getBoundingClientRect()];
  scroll.scrollTop += box.top + box.height / 2 - area.top - area.height / 2;
  scroll.scrollLeft += box.left + box.width / 2 - area.left - area.width / 2;
}

const firstMark = () => find("hit-body").querySelector(".spot rect") ?? find("hit-body").querySelector(".passage rect");

/** Make it larger or smaller; a mark that was in view stays there. */
function zoomTo(wished) {
  const [mark, area] = [firstMark(), find("hit-scroll").getBoundingClientRect()];
  const box = mark?.getBoundingClientRect();
  setZoom(wished);
  if (box && box.bottom > area.top && box.top < area.bottom) center(mark);
}

function setZoom(wished) {
  zoom = Math.max(0, Math.min(ZOOMS.length - 1, wished));
  find("hit-body").style.width = `${ZOOMS[zoom] * 100}%`;
  find("hit-smaller").disabled = zoom === 0;
  find("hit-larger").disabled = zoom === ZOOMS.length - 1;
}

function onKey(event) {
  if (event.altKey || event.ctrlKey || event.metaKey) return;
  if (event.key === "Escape") {
    event.preventDefault();
    closeHit();
  }
  if (find("hit-scroll").contains(event.target)) return; // arrows scroll there
  const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  if (step) steps.move(step);
}

async function download() {
  const { hit } = shown;
  try {
    const url = URL.createObjectURL(await downloadFile(hit.file_id, control.signal));
    make("a", { href: url, download: hit.filename }).click();
    setTimeout(() => URL.revokeObjectURL(url), 60_000); // the browser reads it after the click
  } catch (error) {
    if (error instanceof GivenUp) return;
    steps.fail(error);
  }
}
