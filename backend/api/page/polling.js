// Asking again while something goes on: with growing pauses while nothing changes, and not while nobody looks.

import { GivenUp } from "./connection.js";

const FIRST_S = 0.7;
const LAST_S = 12;
const GROWTH = 1.5;

export class Polling {
  /** `look()` answers {busy, changed}; once nothing is busy it is not asked again until `soon`. */
  constructor(look) {
    Object.assign(this, { look, pause_s: FIRST_S, timer: null, looking: false, again: false, wanted: false });
    document.addEventListener("visibilitychange", () => this.wanted && !document.hidden && this.soon());
  }

  /** Look at once, with short pauses again. */
  soon() {
    this.wanted = true;
    this.pause_s = FIRST_S;
    clearTimeout(this.timer);
    if (this.looking) this.again = true; // what is asked now may have been answered before
    else this.run();
  }

  stop() {
    this.wanted = this.again = false;
    clearTimeout(this.timer);
  }

  async run() {
    this.looking = true;
    let told = { busy: true, changed: false };
    try {
      told = await this.look();
    } catch (error) {
      if (!(error instanceof GivenUp)) throw error;
      told = { busy: false, changed: false };
    } finally {
      this.looking = false;
    }
    if (this.again) {
      this.again = false;
      if (this.wanted) this.run();
      return;
    }
    this.pause_s = told.changed ? FIRST_S : Math.min(LAST_S, this.pause_s * GROWTH);
    if (!told.busy) this.wanted = false;
    if (this.wanted && !document.hidden) this.timer = setTimeout(() => this.run(), this.pause_s * 1000);
  }
}
