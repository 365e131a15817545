// A deletion that can be taken back for some seconds: it is done when they are over, at the next one, or when the page is
// left. Until then nothing is deleted.

import { make } from "./dom.js";
import { say } from "./language.js";
import { announce, clear, put } from "./notices.js";

const UNDO_S = 8;

let waiting = null; // {act, into, timer}

/** Tell `key` with `values` and do `act` soon; `restore` is called if it is taken back instead. */
export function deleteLater([key, values], { into, act, restore }) {
  finishDeletion();
  const mine = (waiting = { act, into, timer: 0 });
  const undo = () => {
    if (waiting !== mine) return;
    end();
    restore();
    announce("deletion_undone");
  };
  const button = say(make("button", { type: "button", id: "undo-deletion", onclick: undo }), "undo");
  put("undo", { class: "notice", into }, say(make("p"), key, values), button);
  wait(mine);
  announce(key, values);
}

/** Do the deletion that still waits, if any. */
export function finishDeletion() {
  const { act } = waiting ?? {};
  if (waiting) end();
  return act?.();
}

function wait(mine) {
  mine.timer = setTimeout(() => {
    const isLookedAt = document.querySelector("[data-kind=undo]:is(:hover, :focus-within)");
    if (isLookedAt) wait(mine);
    else finishDeletion();
  }, UNDO_S * 1000);
}

function end() {
  clearTimeout(waiting.timer);
  clear("undo", waiting);
  waiting = null;
}

addEventListener("pagehide", finishDeletion);
