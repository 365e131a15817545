// The calls of OpenAI's files and vector stores that the library needs. Knows nothing of what is shown.

import { call, callFor } from "./connection.js";

export const LISTED = 100; // files or collections of one list, the most that it answers

const storePath = (id, rest = "") => `vector_stores/${encodeURIComponent(id)}${rest}`;
const filePath = (id, rest = "") => `files/${encodeURIComponent(id)}${rest}`;
const memberPath = (store, file, rest = "") => storePath(store, `/files/${encodeURIComponent(file)}${rest}`);
const json = (response) => response.json();
const read = (path, signal) => callFor(json, path, { signal });
// A request of a page that is being closed still goes out.
const remove = (path, signal) => call(path, { method: "DELETE", keepalive: true, signal });

function post(path, body, signal) {
  const headers = { "Content-Type": "application/json" };
  return callFor(json, path, { method: "POST", headers, body: JSON.stringify(body), signal });
}

/** Every collection, the newest first. */
export async function listStores(signal) {
  const stores = [];
  for (let after = ""; ; ) {
    const { data, has_more: more } = await read(`vector_stores?limit=${LISTED}${after}`, signal);
    stores.push(...data);
    if (!more || !data.length) return stores;
    after = `&after=${encodeURIComponent(data.at(-1).id)}`;
  }
}

export const createStore = (name, signal) => post("vector_stores", { name }, signal);
export const readStore = (id, signal) => read(storePath(id), signal);
export const deleteStore = (id, signal) => remove(storePath(id), signal);
export const reembedStore = (id, signal) => post(storePath(id, "/reembed"), {}, signal);

/** A part of a collection's files, the newest first, behind the file `after`. */
export async function listFiles(store, { after = null, signal }) {
  const behind = after ? `&after=${encodeURIComponent(after)}` : "";
  const { data, has_more: more } = await read(storePath(store, `/files?limit=${LISTED}${behind}`), signal);
  return { files: data, more: more && data.length > 0 };
}

export const addFile = (store, file, signal) => post(storePath(store, "/files"), { file_id: file }, signal);
export const removeFile = (store, file, signal) => remove(memberPath(store, file), signal);
export const deleteFile = (file, signal) => remove(filePath(file), signal);
export const downloadFile = (file, signal) => callFor((response) => response.blob(), filePath(file, "/content"), { signal });
export const search = (store, body, signal) => post(storePath(store, "/search"), body, signal);
export const picturePath = (file, page) => filePath(file, `/pages/${page}`);

/** The chunks of a file in the order of its text. */
export const readChunks = async (store, file, signal) => (await read(memberPath(store, file, "/content"), signal)).data;
