// The calls of stored documents that the ledger and the validation screen need beside those of one. Knows nothing of what is shown.

import { GivenUp, call, callFor, pause, persist, problemFrom, upload } from "./connection.js";
import { follow } from "./events.js";
import { documentOf, documentPath, json, read, readDocument } from "./stored_document.js";

/** The ledger of the documents that a query names, such as {state: "to_review"}. */
export const readLedger = (query, signal) => read(`documents/ledger?${new URLSearchParams(query)}`, signal);

const TRIES = 5;
const AGAIN_S = 2;

/**
 * Send a file to be read and kept, and wait until it is; `onSent(part)` tells how much of it is out, `onProgress` how far
 * the reading is. It goes on when the page is closed; a service that was stopped before it had read the file gets it again.
 */
export async function storeDocument(file, password, told) {
  for (let tries = 1; ; tries += 1) {
    try {
      return await storeOnce(file, password, told);
    } catch (error) {
      if (!error.isStopped || tries === TRIES) throw error;
      await pause(AGAIN_S, error, { signal: told.signal, onWait: () => {} });
    }
  }
}

async function storeOnce(file, password, { onSent, onProgress, signal, onWait, onBack }) {
  const form = new FormData();
  form.set("store", "true");
  form.set("features", "fields,tables,classes,language"); // pages with their words are kept, too
  if (password) form.set("password", password);
  form.set("file", file, file.name || "clipboard.png");
  const job = await persist(() => upload("jobs", form, { onSent, signal }), { signal, onWait, onBack });
  let ended = null;
  const onEvent = (name, data) => {
    if (name === "progress") onProgress(data);
    else if (name === "end") ended = data;
  };
  try {
    await follow(`jobs/${job.id}/events`, { signal, onEvent, onWait, onBack });
  } catch (error) {
    if (error instanceof GivenUp) call(`jobs/${job.id}`, { method: "DELETE", keepalive: true }).catch(() => {}); // nobody wants it any more
    if (error.status !== 404) throw error;
    await requireStored(job, signal); // the job is forgotten: the service was started anew
    return { id: documentOf(job) };
  }
  if (ended?.status === "succeeded") return { id: documentOf(job) };
  const problem = problemFrom(ended?.error ?? { code: "cancelled" });
  throw Object.assign(problem, { isStopped: problem.code === "unavailable" && problem.retryable });
}

/** Raise a Problem with `isStopped` unless the document of a job is kept. */
async function requireStored(job, signal) {
  await readDocument(documentOf(job), signal).catch((error) => {
    throw Object.assign(error, { isStopped: error.status === 404 });
  });
}

function send(method, where, body, signal) {
  const headers = { "Content-Type": "application/json" };
  return callFor(json, where, { method, headers, body: JSON.stringify(body), signal });
}

export const correct = (id, body, signal) => send("PATCH", documentPath(id, "/fields"), body, signal);

/** Cut a file into other documents: {documents: [{pages: "1-2"}, …], revision}. */
export const split = (id, body, signal) => send("POST", documentPath(id, "/split"), body, signal);

export const confirm = (id, query, signal) => callFor(json, `${documentPath(id, "/confirm")}?${new URLSearchParams(query)}`, { method: "POST", signal });

/** An export of the documents that a query names: a blob with its file's name. */
export const exportDocuments = (query, signal) =>
  callFor(async (response) => ({ blob: await response.blob(), name: nameOf(response) }), `documents/export?${new URLSearchParams(query)}`, { signal });

const nameOf = (response) => /filename="([^"]+)"/.exec(response.headers.get("Content-Disposition") ?? "")?.[1] ?? "export";
