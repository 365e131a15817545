// A recording that is played, and the word that is spoken: marked while it plays, wherever it was started.

import { make } from "./dom.js";
import { say } from "./language.js";
import "./speech_strings.js";

const LINGERS_S = 0.3; // a word stays marked in the pause behind it
const FAR_S = 1e7; // browsers' own recordings do not tell their length before their end was looked for

export class Player {
  /** `onFail()` is called where the browser cannot play the recording. */
  constructor(onFail) {
    this.audio = say(make("audio", { controls: true, preload: "metadata" }), "player", {}, "aria-label");
    Object.assign(this, { url: "", words: [], marked: null, wished_s: null });
    this.audio.addEventListener("error", () => this.url && onFail());
    this.audio.addEventListener("loadedmetadata", () => this.findEnd());
    this.audio.addEventListener("durationchange", () => this.atEnd());
    this.audio.addEventListener("play", () => this.run());
    for (const name of ["seeked", "pause", "ended"]) this.audio.addEventListener(name, () => this.mark());
  }

  load(blob) {
    this.release();
    this.url = URL.createObjectURL(blob);
    this.audio.src = this.url;
  }

  release() {
    this.audio.pause();
    this.audio.removeAttribute("src");
    URL.revokeObjectURL(this.url);
    Object.assign(this, { url: "", words: [], wished_s: null });
    this.unmark();
  }

  /** The words to mark, in the order of their times: {start, end, node}; in seconds. */
  follow(words) {
    this.words = words;
  }

  playFrom(seconds) {
    this.seek(seconds);
    this.audio.play().catch((error) => {
      if (!(error instanceof DOMException)) throw error; // not allowed, or not of a kind that is played: said elsewhere
    });
  }

  seek(seconds) {
    if (this.wished_s === null) this.audio.currentTime = seconds;
    else this.wished_s = seconds; // its end is looked for first
  }

  findEnd() {
    if (Number.isFinite(this.audio.duration)) return;
    this.wished_s = this.audio.currentTime;
    this.audio.currentTime = FAR_S;
  }

  atEnd() {
    if (this.wished_s === null || !Number.isFinite(this.audio.duration)) return;
    const wished_s = this.wished_s;
    this.wished_s = null;
    this.audio.currentTime = wished_s;
  }

  run() {
    this.mark();
    if (!this.audio.paused) requestAnimationFrame(() => this.run());
  }

  mark() {
    if (this.wished_s !== null) return;
    const word = wordAt(this.words, this.audio.currentTime);
    if (word === this.marked) return;
    this.unmark();
    this.marked = word;
    if (!word) return;
    word.node.classList.add("spoken");
    if (!this.audio.paused) keepInView(word.node);
  }

  unmark() {
    this.marked?.node.classList.remove("spoken");
    this.marked = null;
  }
}

/** The word that is spoken at a time, or null. */
function wordAt(words, seconds) {
  let [low, high] = [0, words.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (words[middle].start <= seconds) low = middle + 1;
    else high = middle;
  }
  const word = words[low - 1];
  return word && seconds < word.end + LINGERS_S ? word : null;
}

function keepInView(node) {
  node.scrollIntoView({ block: "nearest", inline: "nearest" });
}
