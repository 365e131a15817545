// How far a document is: what is done with it now, how much of it is done, and how long it has taken so far.

import { find } from "./dom.js";
import { duration, later, say } from "./language.js";
import { announceProgress } from "./notices.js";

const SPOKEN_EVERY_S = 20; // while nothing else changes: a page may take long, and silence sounds like a fault
const now_s = () => Date.now() / 1000;

let started_s = 0;
let spoken_s = 0;
let timer = null;

/** Count the time from `start_s`, in Unix seconds. */
export function startClock(start_s = now_s()) {
  started_s = start_s;
}

/** Show what is done now. Without `part` (0 to 1) the bar moves and tells no share. */
export function showProgress(key, values, part = null) {
  find("progress-box").hidden = false;
  if (part === null) find("progress").removeAttribute("value");
  else find("progress").value = part;
  say(find("progress-text"), key, values);
  announceProgress(key, values);
  spoken_s = now_s();
  timer ??= setInterval(showElapsed, 1000);
  showElapsed();
}

export function hideProgress() {
  clearInterval(timer);
  timer = null;
  find("progress-box").hidden = true;
}

function showElapsed() {
  const spent = later(duration, Math.max(0, now_s() - started_s)); // the clock of the service may be ahead
  say(find("elapsed"), "elapsed", { spent });
  if (now_s() - spoken_s < SPOKEN_EVERY_S) return;
  announceProgress("still", { what: find("progress-text").textContent, spent });
  spoken_s = now_s();
}
