// The microphone: a recording is made in the browser and handed over as a file. The button is there only where it works.

import { find } from "./dom.js";
import { clock, say, t } from "./language.js";
import { announce, clear, showNotice } from "./notices.js";

const INTO = { into: "intake-notices" };
const REFUSALS = { NotAllowedError: "microphone_denied", SecurityError: "microphone_denied", NotFoundError: "microphone_absent" };
const ENDINGS = { "audio/mp4": "m4a", "audio/ogg": "ogg" }; // others, Chromium's and Firefox', are WebM

let recorder = null;
let asking = false;
let timer = null;

/** Connect the buttons; `take(file)` gets each recording. Browsers have a microphone in secure contexts only. */
export function startRecorder(take) {
  find("record").hidden = !(isSecureContext && navigator.mediaDevices?.getUserMedia && "MediaRecorder" in window);
  find("record").addEventListener("click", () => record(take));
  find("record-stop").addEventListener("click", () => recorder?.stop());
  find("record-drop").addEventListener("click", () => {
    dropRecording();
    find("record").focus();
    announce("record_dropped");
  });
  addEventListener("beforeunload", (event) => recorder && event.preventDefault());
}

/** Stop a recording that goes on, and keep nothing of it. */
export function dropRecording() {
  const dropped = recorder;
  recorder = null;
  dropped?.stop();
  show(false);
}

async function record(take) {
  if (recorder || asking) return;
  clear(null, INTO);
  asking = true;
  try {
    const stream = await navigator.mediaDevices.getUserMedia({ audio: true });
    begin(new MediaRecorder(stream), stream, take);
  } catch (error) {
    if (!(error instanceof DOMException)) throw error;
    const key = REFUSALS[error.name] ?? "microphone_failed";
    showNotice("microphone", key, {}, INTO);
    announce(key);
  } finally {
    asking = false;
  }
}

function begin(mine, stream, take) {
  const parts = [];
  mine.addEventListener("dataavailable", ({ data }) => parts.push(data));
  mine.addEventListener("stop", () => {
    for (const track of stream.getTracks()) track.stop();
    if (recorder !== mine) return; // discarded
    recorder = null;
    show(false);
    take(fileOf(parts, mine.mimeType));
  });
  recorder = mine;
  mine.start(1000);
  show(true);
  find("record-stop").focus();
  announce("recording");
}

function fileOf(parts, type) {
  const when = new Date().toLocaleString("sv").slice(0, 16).replace(":", "."); // 2026-03-31 09.15, for names of files
  const kind = type.split(";")[0];
  return new File(parts, `${t("recording_name", { when })}.${ENDINGS[kind] ?? "webm"}`, { type: kind });
}

function show(recording) {
  find("intake-choices").hidden = recording;
  find("recorder").hidden = !recording;
  clearInterval(timer);
  if (!recording) return;
  const began = performance.now();
  const tell = () => say(find("recording-time"), "{time}", { time: clock((performance.now() - began) / 1000) });
  tell();
  timer = setInterval(tell, 500);
}
