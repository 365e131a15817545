// Files on their way to the service: a few at a time; those that fail stay until they are tried again or dropped.

import { GivenUp, Lost, Problem } from "./connection.js";

const AT_ONCE = 3;

let keys = 0;

export class Uploads {
  /**
   * `deliver(item, {onSent, signal, change})` brings a file to the service; `onChange(item)` is told of every change,
   * `onAdded(item, answer)` of what `deliver` gave. An item: {key, store, file, state, part, problem, id}, state being
   * waiting, sending, adding, failed or dropped.
   */
  constructor({ deliver, onChange, onAdded }) {
    Object.assign(this, { deliver, onChange, onAdded, items: [], running: 0 });
  }

  get busy() {
    return this.items.some((item) => item.state !== "failed");
  }

  of(store) {
    return this.items.filter((item) => item.store === store);
  }

  add(store, files) {
    for (const file of files) {
      const item = { key: ++keys, store, file, state: "waiting", part: 0, problem: null, id: null };
      this.items.push(item);
      this.onChange(item);
    }
    this.next();
  }

  retry(item) {
    Object.assign(item, { state: "waiting", part: 0, problem: null });
    this.onChange(item);
    this.next();
  }

  drop(item) {
    item.control?.abort();
    this.forget(item, "dropped");
  }

  /** Stop whatever goes to a collection that is deleted. */
  dropAll(store) {
    for (const item of this.of(store)) this.drop(item);
  }

  next() {
    while (this.running < AT_ONCE) {
      const item = this.items.find((one) => one.state === "waiting");
      if (!item) return;
      this.running += 1;
      this.send(item).finally(() => {
        this.running -= 1;
        this.next();
      });
    }
  }

  async send(item) {
    item.control = new AbortController();
    const { signal } = item.control;
    const change = (changes) => this.change(item, changes);
    try {
      change({ state: "sending" });
      const added = await this.deliver(item, { onSent: (part) => change({ part }), signal, change });
      if (!this.items.includes(item)) return; // dropped
      this.forget(item, "added");
      this.onAdded(item, added);
    } catch (error) {
      if (!this.items.includes(item)) return; // dropped
      if (!(error instanceof Problem || error instanceof Lost || error instanceof GivenUp)) throw error;
      this.change(item, { state: "failed", problem: error });
    }
  }

  change(item, changes) {
    if (!this.items.includes(item)) return;
    Object.assign(item, changes);
    this.onChange(item);
  }

  forget(item, state) {
    this.items = this.items.filter((one) => one !== item);
    item.state = state;
    this.onChange(item);
  }
}
