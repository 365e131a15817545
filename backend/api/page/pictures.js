// Pictures of pages: asked for with the key, few at a time, given up when they leave the view.

import { GivenUp, call } from "./connection.js";
import { opening } from "./secret.js";

const AT_ONCE = 3; // a page takes a core of the service; scrolling past 200 pages must not queue 200

let running = 0;
const waiting = [];

/** An object URL of the picture at `path`, for the caller to revoke. */
export async function picture(path, signal) {
  await turn(signal);
  try {
    const response = await call(path, { signal, headers: { Accept: "image/png", ...opening(path) } });
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
  constructor(image, path, onFailed) {
    Object.assign(this, { image, path, onFailed, url: null, control: null });
  }

  async enter() {
    if (this.control) return;
    const control = (this.control = new AbortController());
    try {
      const url = await picture(this.path, control.signal);
      if (control.signal.aborted) return URL.revokeObjectURL(url);
      this.url = url;
      this.image.src = url;
      this.image.hidden = false;
    } catch (error) {
      if (!control.signal.aborted) this.onFailed(error);
    }
  }

  leave() {
    this.control?.abort();
    this.control = null;
    if (!this.url) return;
    this.image.hidden = true;
    this.image.removeAttribute("src");
    URL.revokeObjectURL(this.url);
    this.url = null;
  }
}
