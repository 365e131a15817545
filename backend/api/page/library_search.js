// The search of the library: the form, its answer as cards, and the hit that is open.

import { search } from "./collections.js";
import { GivenUp, Lost, Problem, persist } from "./connection.js";
import { find, make } from "./dom.js";
import { filter } from "./filter_panel.js";
import { closeHit, isModal, isOpen, makeHitView, showHit } from "./hit_view.js";
import { focusHit, markHit, showHits, startHits } from "./hits.js";
import { quote, say } from "./language.js";
import { announce, clear, showNotice, showProblem } from "./notices.js";
import { selectOf } from "./tabs.js";

export const TABS = ["files", "results"];
const LIMITS = [10, 25, 50]; // hits asked for, first and then on; 50 is the most of one search
const FAR = 0.25; // of the best hit's score: what fits less is shown when it is asked for
const INTO = { into: "library-notices" };

let store = null; // () => the collection that is shown
let refused = () => {};
let waits = {};
let control = new AbortController();
let hits = [];
let opened = null; // index of the hit that is open
let limit = LIMITS[0];
let far = null; // the answer, where hits that fit far less were left out

/** The dialog of hits, to be put into the frame before `startSearch`. */
export const hitView = () => makeHitView({ move, leave, fail: (error) => showProblem(error, INTO) });

/**
 * Connect the form; `ofStore()` is the collection that is shown, `waiting` what `persist` tells; `onWrongEncoder()` is
 * called where the service refuses to compare with the vectors of the collection.
 */
export function startSearch({ ofStore, onWrongEncoder, waiting }) {
  [store, refused, waits] = [ofStore, onWrongEncoder, waiting];
  startHits((index) => show(index, true));
  find("search").addEventListener("submit", (event) => {
    event.preventDefault();
    limit = LIMITS[0];
    run();
  });
  find("more-hits").addEventListener("click", () => {
    const keepsFocus = hits.length;
    if (far) return showAnswer({ ...far, all: true }, { keepsFocus });
    limit = LIMITS[Math.min(LIMITS.length - 1, LIMITS.indexOf(limit) + 1)];
    return run({ keepsFocus, all: true });
  });
}

/** Forget what was found, for another collection. */
export function resetSearch() {
  control.abort();
  hits = [];
  limit = LIMITS[0];
  find("query").value = "";
  showNothing();
}

/** Search again where a query stands: its filters have changed. */
export function searchAgain() {
  if (find("query").value.trim()) run({ stays: true });
}

/** Close a hit that covers the page; it comes back with the view. */
export function coverNothing() {
  if (isModal() && isOpen()) closeHit({ quietly: true });
}

async function run({ keepsFocus = null, stays = false, all = false } = {}) {
  const query = find("query").value.trim();
  control.abort();
  control = new AbortController();
  const { signal } = control;
  clear("search", INTO);
  clear("problem", INTO);
  if (!query || !store()) {
    find("query").focus();
    if (query) showNotice("search", "search_without_store", {}, INTO);
    else showNothing();
    return;
  }
  selectOf(TABS, "results");
  find("panel-results").setAttribute("aria-busy", "true");
  say(find("hits-told"), "searching");
  try {
    showAnswer({ ...(await ask(query, signal)), all }, { keepsFocus, stays });
  } catch (error) {
    if (signal.aborted || error instanceof GivenUp) return;
    if (!(error instanceof Problem || error instanceof Lost)) throw error;
    showNothing();
    showProblem(error, INTO);
  } finally {
    if (!signal.aborted) find("panel-results").removeAttribute("aria-busy");
  }
}

/** The service's answer; where the vectors are another model's, that to the words alone. */
async function ask(query, signal) {
  const filters = filter();
  const body = { query, max_num_results: limit, ...(filters ? { filters } : {}) };
  const send = (more) => persist(() => search(store().id, { ...body, ...more }, signal), { ...waits, signal });
  try {
    return await send({});
  } catch (error) {
    if (error.code !== "wrong_encoder") throw error;
    const answer = await send({ ranking_options: { hybrid_search: { embedding_weight: 0, text_weight: 1 } } });
    refused();
    return answer;
  }
}

function showAnswer({ all = false, ...answer }, { keepsFocus = null, stays = false }) {
  const { data, has_more: more, warnings = [] } = answer;
  hits = all ? data : data.filter(({ score }) => score >= FAR * data[0].score);
  far = hits.length < data.length ? answer : null;
  opened = null;
  closeHit({ quietly: true });
  showHits(hits);
  const count = { n: hits.length };
  if (hits.length) say(find("hits-told"), far ? "hits_near" : more ? "hits_first" : "hits_found", count);
  else say(find("hits-told"), filter() ? "hits_none_filtered" : "hits_none");
  say(find("tab-results"), "tab_results", count);
  announce(hits.length ? "hits_found" : "hits_none", count);
  find("search-warnings").hidden = !warnings.length;
  find("search-warnings").replaceChildren(...warnings.map((text) => quote(make("li"), text)));
  find("more-hits").hidden = !far && (!more || limit === LIMITS.at(-1));
  if (keepsFocus !== null) focusHit(keepsFocus);
  else if (!stays) document.querySelector("#filter-chips:not([hidden]), .library-tabs").scrollIntoView({ block: "start" }); // below the search
  if (hits.length && !isModal()) show(keepsFocus ?? 0, false);
}

function showNothing() {
  hits = [];
  opened = null;
  closeHit({ quietly: true });
  showHits([]);
  say(find("hits-told"), "results_before");
  say(find("tab-results"), "tab_results", { n: 0 });
  find("search-warnings").hidden = true;
  find("more-hits").hidden = true;
}

function show(index, takesFocus) {
  opened = index;
  markHit(index);
  showHit(store().id, hits[index], { index, count: hits.length, takesFocus });
  if (takesFocus) announce("hit_spoken", { n: index + 1, count: hits.length });
}

function move(step) {
  const index = opened + step;
  if (index >= 0 && index < hits.length) show(index, true);
}

function leave() {
  const index = opened;
  opened = null;
  markHit(null);
  if (index !== null) focusHit(index);
}
