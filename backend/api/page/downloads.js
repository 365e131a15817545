// The document in every format that the service writes; of a job that ended early, the pages that it had read.

import { GivenUp, call } from "./connection.js";
import { find, icon, make } from "./dom.js";
import { say } from "./language.js";
import { announce, clear, showNotice, showProblem } from "./notices.js";
import { opened } from "./secret.js";

const FORMATS = [
  ["pdf", "download_pdf", "about_pdf", ".searchable.pdf"],
  ["text", "download_text", "about_text", ".txt"],
  ["xlsx", "download_xlsx", "about_xlsx", ".xlsx"],
  ["csv", "download_csv", "about_csv", ".csv"],
  ["html", "download_html", "about_html", ".html"],
  ["markdown", "download_markdown", "about_markdown", ".md"],
  ["json", "download_json", "about_json", ".json"],
  ["hocr", "download_hocr", "about_hocr", ".hocr"],
  ["alto", "download_alto", "about_alto", ".alto.xml"],
];

export function waitForDownloads() {
  find("panel-downloads").replaceChildren(say(make("p", { class: "quiet" }), "wait_downloads"));
}

/** Offer what `path` has in other formats: that of a job or of a stored document. */
export function showDownloads(path, fileName) {
  const items = FORMATS.map(([format, key, about, ending]) => {
    const get = () => download(path, format, base(fileName) + ending);
    const button = make("button", { type: "button", class: "download", onclick: get }, icon("download"));
    button.append(make("span", {}, say(make("strong"), key), say(make("span", { class: "quiet" }), about)));
    return make("li", {}, button);
  });
  find("panel-downloads").replaceChildren(make("ul", { class: "downloads" }, ...items));
}

async function download(path, format, name) {
  try {
    const where = `${path}/result?format=${format}`;
    const response = await opened(where, (headers) => call(where, { headers }), { name });
    save(await response.blob(), name);
    announce("download_done", { name });
    clear("download");
  } catch (error) {
    if (error instanceof GivenUp) return;
    if (error.code) showProblem(error);
    else showNotice("download", "download_failed", { name });
  }
}

/** Have the browser save a file. */
export function save(blob, name) {
  const url = URL.createObjectURL(blob);
  make("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000); // the browser reads it after the click
}

/** A name without its ending and without what file systems refuse. */
export const base = (name) => name.replace(/\.[^.]*$/, "").replace(/[\\/:*?"<>|\u0000-\u001f]/g, "_").slice(0, 120) || "document";
