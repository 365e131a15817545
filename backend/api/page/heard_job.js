// A recording that is heard as a job: its minutes, as the events and the result tell them, as a transcript.

import { isRecording } from "./hearing.js";
import { endTranscript, openTranscript, putSegment } from "./transcript.js";

const LONG_S = 900; // a longer recording becomes a job: it goes on when the page is closed
const LONG_BYTES = 32 * 1024 * 1024; // of one whose length the browser does not tell
const PATIENCE_MS = 2000;

let minutes = new Map(); // number -> page

export const isSpoken = (page) => page.source === "speech";

/** Whether a job is about a recording, as far as the name of its file tells. */
export const soundsSpoken = (job) => isRecording({ type: "", name: job.file?.name ?? "" });

/** Whether a recording is so long that it is better sent as a job. */
export async function isLong(file) {
  const length_s = await toldLength(file);
  return length_s === null ? file.size > LONG_BYTES : length_s > LONG_S;
}

/** Seconds, as the browser finds them in the file; null where it does not soon. */
function toldLength(file) {
  const audio = new Audio();
  const url = URL.createObjectURL(file);
  return new Promise((resolve) => {
    setTimeout(() => resolve(null), PATIENCE_MS);
    audio.addEventListener("error", () => resolve(null));
    audio.addEventListener("loadedmetadata", () => resolve(Number.isFinite(audio.duration) ? audio.duration : null));
    audio.preload = "metadata";
    audio.src = url;
  }).finally(() => {
    audio.removeAttribute("src");
    URL.revokeObjectURL(url);
  });
}

/** Begin a transcript that has no word yet; `file` is null after a reload. */
export function openMinutes(file, name) {
  minutes = new Map();
  openTranscript(file, name);
}

/** Show a minute, or what became known of it since. */
export function putMinute(page) {
  minutes.set(page.number, page);
  inOrder().flatMap(segmentsOf).forEach((segment, index) => putSegment(index, segment));
}

/** Show the whole result, with the seconds of its words; returns what is known of the recording as a whole. */
export function endMinutes(result) {
  for (const page of result.pages ?? []) minutes.set(page.number, page);
  inOrder().flatMap(segmentsOf).forEach((segment, index) => putSegment(index, segment));
  const known = wholeOf(result);
  endTranscript(known);
  return known;
}

const inOrder = () => [...minutes.values()].sort((one, other) => one.number - other.number);
const endOf = (page) => page.end_s ?? page.width;

/** Passages of a minute: those of its lines where their words have seconds, before that the minute as a whole. */
function segmentsOf(page, index, pages) {
  const start = page.start_s ?? (index ? endOf(pages[index - 1]) : 0);
  const whole = { start, end: endOf(page), language: page.language, delta: ` ${page.text.replaceAll("\n", " ")}`, words: [] };
  if (!Array.isArray(page.words)) return page.text.trim() ? [whole] : [];
  const letters = [...page.text];
  return Object.values(Object.groupBy(page.words, ({ line }) => line)).map((line) => ({
    start: line[0].start_s,
    end: line.at(-1).end_s,
    language: page.language,
    delta: ` ${letters.slice(line[0].start, line.at(-1).end).join("")}`,
    words: line.map(({ text, start_s, end_s, confidence }) => ({ word: text, start: start_s, end: end_s, confidence })),
  }));
}

function wholeOf({ pages = [], metadata = {}, language }) {
  const last = pages.at(-1);
  const codes = [language?.code, ...pages.map((page) => page.language)].filter(Boolean);
  return {
    duration: last ? endOf(last) : 0,
    speech_s: Number(metadata.speech_s ?? NaN),
    languages: [...new Set(codes)].map((code) => ({ code })),
    language_score: language?.score,
    model: last?.engine,
    why: (last?.why ?? "").split("; ").slice(1).join("; "), // after what was done with the minute
  };
}
