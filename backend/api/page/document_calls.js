// The calls of stored documents that the ledger and the validation screen need. Knows nothing of what is shown.

import { GivenUp, call, callFor, persist, problemFrom, upload } from "./connection.js";
import { follow } from "./events.js";

const path = (id, rest = "") => `documents/${encodeURIComponent(id)}${rest}`;
const json = (response) => response.json();
const read = (where, signal) => callFor(json, where, { signal });

/** The ledger of the documents that a query names, such as {state: "to_review"}. */
export const readLedger = (query, signal) => read(`documents/ledger?${new URLSearchParams(query)}`, signal);

/** The id of the document that a job with store=true makes. */
export const documentOf = (job) => `file-${job.id}`;

/** The job that makes a stored document, from the document's id. */
export const jobOf = (id) => id.replace(/^file-/, "");

/**
 * Send a file to be read and kept, and wait until it is; `onSent(part)` tells how much of it is out, `onProgress` how far
 * the reading is. It goes on when the page is closed.
 */
export async function storeDocument(file, password, { onSent, onProgress, signal, onWait, onBack }) {
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
    throw error;
  }
  if (ended?.status !== "succeeded") throw problemFrom(ended?.error ?? { code: "cancelled" });
  return { id: documentOf(job) };
}

/** The file of a document as it was sent. */
export const readOriginal = async (id, name, signal) => new File([await callFor((response) => response.blob(), path(id, "/content"), { signal })], name);

/** A document with its pages; what `correct` and `confirm` answer has none. */
export const readDocument = (id, signal) => read(path(id), signal);
export const picturePath = (id, number) => path(id, `/pages/${number}.png`);

function send(method, where, body, signal) {
  const headers = { "Content-Type": "application/json" };
  return callFor(json, where, { method, headers, body: JSON.stringify(body), signal });
}

export const correct = (id, body, signal) => send("PATCH", path(id, "/fields"), body, signal);

/** Cut a file into other documents: {documents: [{pages: "1-2"}, …], revision}. */
export const split = (id, body, signal) => send("POST", path(id, "/split"), body, signal);

export const confirm = (id, query, signal) => callFor(json, `${path(id, "/confirm")}?${new URLSearchParams(query)}`, { method: "POST", signal });

/** Delete a file with all of its documents, even from a page that is being closed. */
export const deleteDocument = (id) => callFor(json, path(id), { method: "DELETE", keepalive: true });

/** An export of the documents that a query names: a blob with its file's name. */
export const exportDocuments = (query, signal) =>
  callFor(async (response) => ({ blob: await response.blob(), name: nameOf(response) }), `documents/export?${new URLSearchParams(query)}`, { signal });

const nameOf = (response) => /filename="([^"]+)"/.exec(response.headers.get("Content-Disposition") ?? "")?.[1] ?? "export";
