// Talking to the service: keys, problems, lost networks. Knows nothing of what is shown.

const KEY = "api-key";
const BACKOFF_S = [1, 2, 4, 8, 15];
export const BASE = new URL("v1/", document.baseURI);

/** An answer that says no; RFC 9457. */
export class Problem extends Error {
  constructor({ status = 0, code = "internal_error", detail = "", retryAfter_s = null, requestId = "", retryable = false }) {
    super(detail || code);
    Object.assign(this, { status, code, detail, retryAfter_s, requestId, retryable });
  }

  get passing() {
    return [429, 502, 503, 504].includes(this.status) && this.code !== "deadline_exceeded";
  }
}

/** The service could not be reached at all. */
export class Lost extends Error {}

/** The reader of the page gave up: a dialog closed, another document begun. */
export class GivenUp extends Error {}

let askKey = async () => null;

/** Who asks for the key: (wrong) => key or null. */
export function keysFrom(asker) {
  askKey = asker;
}

export function authorization() {
  const key = sessionStorage.getItem(KEY);
  return key ? { Authorization: `Bearer ${key}` } : {};
}

let asking = null; // one dialog, however many requests are refused at once

async function newKey(refused) {
  if (refused !== sessionStorage.getItem(KEY)) return; // another request has asked meanwhile
  asking ??= askKey(refused !== null).finally(() => (asking = null));
  const key = await asking;
  if (key === null) throw new GivenUp("no key");
  sessionStorage.setItem(KEY, key);
}

/** Run `send(headers) -> Response` with the key, asking for one as long as it is refused. */
export async function withKey(send) {
  for (;;) {
    const key = sessionStorage.getItem(KEY);
    const response = await send(authorization());
    if (response.status !== 401) return response;
    await newKey(key);
  }
}

/** A request below v1/; raises Problem for an answer that says no, Lost for none at all. */
export async function call(path, { headers = {}, ...rest } = {}) {
  const response = await withKey((key) => reach(new URL(path, BASE), { ...rest, headers: { ...headers, ...key } }));
  if (!response.ok) throw await problemOf(response);
  return response;
}

/** What `read(response)` makes of the answer, whose body may be cut short or given up too. */
export async function callFor(read, path, init) {
  const response = await call(path, init);
  return arrival(() => read(response));
}

const reach = (url, init) => arrival(() => fetch(url, { cache: "no-store", ...init }));

/** The browser's errors of a connection, as ours. */
async function arrival(receive) {
  try {
    return await receive();
  } catch (error) {
    if (error.name === "AbortError") throw new GivenUp("stopped");
    throw new Lost(error.message);
  }
}

/** What an answer that says no means. */
export async function problemOf(response) {
  const said = await response.json().catch(() => ({}));
  const after = Number.parseFloat(response.headers.get("Retry-After"));
  return problemFrom(said, { status: response.status, retryAfter_s: Number.isFinite(after) ? after : null });
}

/** The same from the error of a job or a page. */
export function problemFrom(said, { status = said?.status ?? 0, retryAfter_s = null } = {}) {
  return new Problem({
    status,
    code: said?.code ?? said?.error?.code,
    detail: said?.detail ?? said?.message ?? said?.error?.message ?? "",
    requestId: said?.request_id ?? "",
    retryable: said?.retryable ?? status >= 500,
    retryAfter_s,
  });
}

/** POST a form; `onSent(part)` tells how much of it is out. fetch() cannot tell that, so XMLHttpRequest. */
export function upload(path, form, { onSent, signal }) {
  const send = (headers) =>
    new Promise((resolve, reject) => {
      const request = new XMLHttpRequest();
      request.open("POST", new URL(path, BASE));
      for (const [name, value] of Object.entries(headers)) request.setRequestHeader(name, value);
      request.upload.onprogress = (event) => event.lengthComputable && onSent(event.loaded / event.total);
      request.onload = () => resolve(answerOf(request));
      request.onerror = () => reject(new Lost("upload"));
      request.onabort = () => reject(new GivenUp("stopped"));
      signal.addEventListener("abort", () => request.abort(), { once: true });
      if (signal.aborted) reject(new GivenUp("stopped"));
      else request.send(form);
    });
  return withKey(send).then(async (response) => {
    if (!response.ok) throw await problemOf(response);
    return response.json();
  });
}

/** The answer of an XMLHttpRequest as fetch() would give it. */
export function answerOf(request) {
  const after = request.getResponseHeader("Retry-After");
  const headers = after ? { "Retry-After": after } : {};
  return new Response(request.responseText, { status: request.status, headers });
}

/**
 * Run `act` until it succeeds or fails for good. A lost network and a busy service are waited for.
 * `onWait(wait_s, error, now)` is told before each wait; calling `now` ends it; so does a network that comes back.
 */
export async function persist(act, { signal, onWait, onBack = () => {} }) {
  for (let attempt = 0; ; attempt += 1) {
    try {
      const value = await act();
      if (attempt) onBack();
      return value;
    } catch (error) {
      if (signal.aborted) throw new GivenUp("stopped");
      if (!(error instanceof Lost || error.passing)) throw error;
      await pause(error.retryAfter_s ?? BACKOFF_S[Math.min(attempt, BACKOFF_S.length - 1)], error, { signal, onWait });
    }
  }
}

/** Wait `wait_s`, or until the network is back, `now` is called, or `signal` ends it all. */
export function pause(wait_s, error, { signal, onWait }) {
  return new Promise((resolve, reject) => {
    const over = (settle) => () => {
      clearTimeout(timer);
      removeEventListener("online", now);
      signal.removeEventListener("abort", stop);
      settle(new GivenUp("stopped"));
    };
    const now = over(resolve);
    const stop = over(reject);
    const timer = setTimeout(now, wait_s * 1000);
    addEventListener("online", now);
    signal.addEventListener("abort", stop);
    onWait(wait_s, error, now);
  });
}
