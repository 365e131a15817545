// Pictures of pages: asked for with the key and the password, few at a time, given up when they leave the view.

import { GivenUp, call } from "./connection.js";
import { find, make } from "./dom.js";
import { say } from "./language.js";
import { isLocked, opened } from "./secret.js";

const AT_ONCE = 3; // a page takes a core of the service; scrolling past 200 pages must not queue 200

let running = 0;
const waiting = [];

/** An object URL of the picture at `path`, for the caller to revoke; `asks` as in `opened`. */
async function picture(path, signal, asks) {
  await turn(signal);
  try {
    const name = (find("validation-title") ?? find("file-name")).textContent;
    const get = (headers) => call(path, { signal, headers: { Accept: "image/png", ...headers } });
    const response = await opened(path, get, { name, asks });
    return URL.createObjectURL(await response.blob());
  } finally {
    running -= 1;
    next();
  }
}

function turn(signal) {
  return new Promise((resolve, reject) => {
    waiting.push({ resolve, reject, signal });
    next();
  });
}

function next() {
  while (running < AT_ONCE && waiting.length) {
    const { resolve, reject, signal } = waiting.shift();
    if (signal.aborted) {
      reject(new GivenUp("out of view"));
    } else {
      running += 1;
      resolve();
    }
  }
}

/** A picture that is there while it is `shown`: loaded on entering the view, dropped on leaving it. */
export class LazyPicture {
  constructor(image, path, { isQuiet = false } = {}) {
    Object.assign(this, { image, path, isQuiet, url: null, control: null });
  }

  async enter(asks = false) {
    if (this.control) return;
    const control = (this.control = new AbortController());
    try {
      const url = await picture(this.path, control.signal, asks);
      if (control.signal.aborted) return URL.revokeObjectURL(url);
      this.url = url;
      this.image.src = url;
      this.image.hidden = false;
    } catch (error) {
      if (!control.signal.aborted && !this.isQuiet) this.fail(error);
    }
  }

  /** Say so where the picture would be; one that is locked can be opened there. */
  fail(error) {
    const node = make("div", { class: "failed-picture" }, say(make("p"), "picture_failed"));
    const again = () => {
      this.leave();
      this.enter(true);
    };
    if (isLocked(error)) node.append(say(make("button", { type: "button", onclick: again }), "open_with_password"));
    this.image.parentElement.append(node);
  }

  leave() {
    this.image.parentElement?.querySelector(".failed-picture")?.remove();
    this.control?.abort();
    this.control = null;
    if (!this.url) return;
    this.image.hidden = true;
    this.image.removeAttribute("src");
    URL.revokeObjectURL(this.url);
    this.url = null;
  }
}
