// The calls of one stored document. Knows nothing of what is shown.

import { callFor } from "./connection.js";

export const documentPath = (id, rest = "") => `documents/${encodeURIComponent(id)}${rest}`;
export const json = (response) => response.json();
export const read = (where, signal) => callFor(json, where, { signal });

/** The id of the document that a job with store=true makes. */
export const documentOf = (job) => `file-${job.id}`;

/** The job that makes a stored document, from the document's id. */
export const jobOf = (id) => id.replace(/^file-/, "");

const fileAt = async (path, name, signal) => new File([await callFor((response) => response.blob(), path, { signal })], name);

/** The file of a document as it was sent. */
export const readOriginal = (id, name, signal) => fileAt(documentPath(id, "/content"), name, signal);

/** A file that came by POST /v1/files, which no document was made of. */
export async function readFile(id, signal) {
  const path = `files/${encodeURIComponent(id)}`;
  const { filename } = await read(path, signal);
  return fileAt(`${path}/content`, filename, signal);
}

/** A document with its pages; what `correct` and `confirm` answer has none. */
export const readDocument = (id, signal) => read(documentPath(id), signal);
export const picturePath = (id, number) => documentPath(id, `/pages/${number}.png`);

/** Delete a file with all of its documents, even from a page that is being closed. */
export const deleteDocument = (id) => callFor(json, documentPath(id), { method: "DELETE", keepalive: true });
