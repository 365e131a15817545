// Where a document comes in: dropped anywhere, chosen, or pasted; and the wishes that go with it.

import { find } from "./dom.js";

/** Call `take(files)` for what comes in at once. */
export function receive(take) {
  const input = find("file");
  find("choose").addEventListener("click", () => input.click());
  find("options").addEventListener("submit", (event) => event.preventDefault());
  input.addEventListener("change", () => {
    accept(input.files, take);
    input.value = ""; // the same file may be chosen again
  });
  addEventListener("paste", (event) => {
    if (event.clipboardData?.files.length) {
      event.preventDefault();
      accept(event.clipboardData.files, take);
    }
  });
  receiveDrops(take);
}

export const choose = () => find("file").click();

function receiveDrops(take) {
  let depth = 0; // dragenter and dragleave come for every element on the way
  const show = (dragging) => {
    find("dragging").hidden = !dragging;
    find("drop").classList.toggle("over", dragging);
  };
  const carriesFile = (event) => event.dataTransfer?.types.includes("Files");
  addEventListener("dragenter", (event) => {
    if (carriesFile(event)) show(++depth > 0);
  });
  addEventListener("dragleave", (event) => {
    if (carriesFile(event)) show(--depth > 0);
  });
  addEventListener("dragover", (event) => carriesFile(event) && event.preventDefault());
  addEventListener("drop", (event) => {
    depth = 0;
    show(false);
    if (!carriesFile(event)) return;
    event.preventDefault();
    accept(event.dataTransfer.files, take);
  });
}

function accept(files, take) {
  if (files.length) take([...files]);
}

/** The language of a recording, where the options name exactly one. */
export function spokenLanguage() {
  const wished = find("options").elements.language.value.replaceAll(" ", "");
  return wished.includes(",") ? "" : wished;
}

/** The form of a request: the options that are not the defaults, `wishes` before them, then the file. */
export function formOf(file, password, wishes = {}) {
  const form = new FormData();
  const features = [...find("features").querySelectorAll("input:checked")].map((box) => box.value);
  if (features.length) form.set("features", features.join());
  for (const name of ["pages", "language", "source", "engine"]) {
    const value = (wishes[name] ?? find("options").elements[name].value).replaceAll(" ", "");
    if (value) form.set(name, value);
  }
  if (password) form.set("password", password);
  form.set("file", file, file.name || "clipboard.png");
  return form;
}
