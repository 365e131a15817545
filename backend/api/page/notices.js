// What the page tells: errors in words, waits, and the status that screen readers hear.

import { GivenUp, Lost, Problem } from "./connection.js";
import { find, icon, make } from "./dom.js";
import { quote, say, t } from "./language.js";
import { STRINGS } from "./strings.js";

const QUIET_S = 3; // progress is not read aloud more often than this
let spoken = 0;
let later = null;

/** Tell screen readers `key` at once. */
export function announce(key, values = {}) {
  clearTimeout(later);
  spoken = performance.now();
  find("status").textContent = t(key, values);
}

/** Tell screen readers of progress, at most every few seconds, the newest always in the end. */
export function announceProgress(key, values = {}) {
  clearTimeout(later);
  const wait = Math.max(0, spoken + QUIET_S * 1000 - performance.now());
  later = setTimeout(() => announce(key, values), wait);
}

/** Take all notices away, or those of one `kind`; `into` is where they stand, here and below. */
export function clear(kind = null, { into = "notices" } = {}) {
  const selector = kind ? `[data-kind="${kind}"]` : "[data-kind]";
  for (const one of find(into).querySelectorAll(selector)) one.remove();
}

/** An error in words, with what to do and what the service itself said. */
export function showProblem(problem, { title = "error_title", into = "notices", about = "" } = {}) {
  clear("wait", { into });
  put(
    "problem",
    { role: "alert", class: "notice bad", into },
    say(make("h2"), title),
    say(make("p"), problemKey(problem, about)),
    serviceWords(problem.detail),
    problem.requestId ? say(make("p", { class: "quiet" }), "request_id", { id: problem.requestId }) : null,
  );
}

/** What the service itself said, in its English, folded: for who runs it. Shown where there is something. */
export function serviceWords(detail = "") {
  const node = make("details", { class: "quiet" }, say(make("summary"), "what_it_said"), make("p", { lang: "en" }));
  return setServiceWords(say(node, "what_it_said", {}, "aria-label"), detail);
}

/** Change what `serviceWords` shows; it stays open where somebody has opened it. */
export function setServiceWords(node, detail) {
  node.hidden = !detail;
  quote(node.lastChild, detail);
  return node;
}

/** Run `act`; what goes wrong is told in `into`. */
export async function tellFaults(act, { into = "notices" } = {}) {
  try {
    clear("problem", { into });
    await act();
  } catch (error) {
    if (error instanceof GivenUp) return;
    const isKnown = error instanceof Problem || error instanceof Lost;
    showProblem(isKnown ? error : new Problem({ detail: String(error) }), { into });
    if (!isKnown) throw error;
  }
}

/** The string that says what an error means to people; `about` is "audio" where it is one of a recording. */
export function problemKey(problem, about = "") {
  const keys = [`error_${about}_${problem.code}`, `error_${problem.code}`];
  return keys.find((key) => key in STRINGS.en) ?? "error_other";
}

/** One sentence that stays until it is cleared. */
export function showNotice(kind, key, values = {}, { into = "notices" } = {}) {
  clear(kind, { into });
  put(kind, { class: "notice", into }, say(make("p"), key, values));
}

/** A wait for the network or a busy service, with a button that ends it. */
export function showWait(wait_s, error, now, { into = "notices" } = {}) {
  clear("wait", { into });
  const key = error.status ? "busy" : "lost";
  const button = say(make("button", { type: "button", onclick: now }), "retry_now");
  put("wait", { class: "notice", into }, say(make("p"), key, { wait: wait_s }), button);
  announce(key, { wait: wait_s });
}

/** The pages that could not be read, each with its reason. */
export function showFailedPages(failed) {
  clear("pages");
  if (!failed.length) return;
  const items = failed.map(({ number, error }) =>
    make("li", {}, say(make("strong"), "page", { page: number }), ": ", say(make("span"), problemKey(error ?? {})), serviceWords(error?.message)),
  );
  const heading = say(make("h2"), "pages_failed", { n: failed.length });
  put("pages", { class: "notice bad" }, heading, make("ul", {}, ...items));
}

/** A notice made of `children`, which stays until it is cleared. */
export function put(kind, { into = "notices", ...properties }, ...children) {
  const text = make("div", { class: "notice-text" }, ...children);
  find(into).append(make("div", { ...properties, "data-kind": kind }, icon("warning"), text));
}
