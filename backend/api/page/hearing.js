// Sending a recording and receiving its transcript while it is made: POST /v1/audio/transcriptions, as a stream.

import { BASE, GivenUp, Lost, Problem, answerOf, call, persist, problemFrom, problemOf, withKey } from "./connection.js";
import { eventOf } from "./events.js";

const SILENCE_S = 45; // the service sends a comment every 15 s: three missed are a dead connection
const ENDINGS = /\.(wav|mp3|mp2|mpga|mpeg|m4a|m4b|mp4|m4v|mov|ogg|oga|opus|flac|webm|mkv|aac|wma|aiff?|caf|amr|avi)$/i;

/** Whether a file is to be heard and not read, as its type or else its name tells. */
export const isRecording = (file) => /^(audio|video)\//.test(file.type) || (!file.type && ENDINGS.test(file.name));

/**
 * The last event of a transcription. `onSegment(index, segment)` is told each segment as soon as it is final, and again
 * from the first one on when the connection broke: the service has kept what it heard, so that goes quickly.
 */
export async function hear(file, { language, signal, onSent, onSegment, onWait, onBack }) {
  await persist(() => requireModel(signal), { signal, onWait, onBack });
  for (let heard_s = 0; ; ) {
    let end_s = 0;
    const told = (index, segment) => {
      end_s = segment.end;
      onSegment(index, segment);
    };
    const attempt = () => once(formOf(file, language), { onSent, onSegment: told, signal });
    try {
      return await persist(attempt, { signal, onWait, onBack });
    } catch (error) {
      if (error.code !== "deadline_exceeded" || end_s <= heard_s) throw error;
      heard_s = end_s; // a long recording goes on where its time was up
    }
  }
}

/** Where no speech model is installed each request would be answered 503, as by a service that is only busy. */
async function requireModel(signal) {
  const { data } = await (await call("models", { signal })).json();
  if (!data.some((model) => model.task === "speech")) throw new Problem({ code: "unavailable" });
}

function formOf(file, language) {
  const form = new FormData();
  const fields = { stream: "true", response_format: "verbose_json", "timestamp_granularities[]": "word" };
  for (const [name, value] of Object.entries(fields)) form.set(name, value);
  if (language) form.set("language", language);
  form.set("file", file, file.name);
  return form;
}

async function once(form, { onSent, onSegment, signal }) {
  let count = 0;
  let last = null;
  const onEvent = (event) => {
    if (event.type === "transcript.text.delta") onSegment(count++, event);
    else last = event;
  };
  const response = await withKey((key) => post(form, key, { onSent, onEvent, signal }));
  if (!response.ok) throw await problemOf(response);
  if (last?.error) throw problemFrom(last.error);
  if (!last) throw new Lost("the stream ended before the transcript did");
  return last;
}

/** XMLHttpRequest, because fetch() tells nothing of how much of the file is out. */
function post(form, headers, { onSent, onEvent, signal }) {
  const request = new XMLHttpRequest();
  let silence = null;
  let read = 0;
  const listen = () => {
    clearTimeout(silence);
    silence = setTimeout(() => request.abort(), SILENCE_S * 1000);
  };
  const take = () => {
    listen();
    if (request.status !== 200) return;
    const text = request.responseText;
    for (let end = text.indexOf("\n\n", read); end >= 0; end = text.indexOf("\n\n", read)) {
      const event = eventOf(text.slice(read, end));
      read = end + 2;
      if (event) onEvent(JSON.parse(event.data));
    }
  };
  return new Promise((resolve, reject) => {
    const stop = () => request.abort();
    request.open("POST", new URL("audio/transcriptions", BASE));
    for (const [name, value] of Object.entries(headers)) request.setRequestHeader(name, value);
    request.upload.onprogress = (event) => event.lengthComputable && onSent(event.loaded / event.total);
    request.upload.onload = () => (onSent(1), listen());
    request.onprogress = take;
    request.onload = () => (take(), resolve(answerOf(request)));
    request.onerror = () => reject(new Lost("upload"));
    request.onabort = () => reject(signal.aborted ? new GivenUp("stopped") : new Lost("silent"));
    request.onloadend = () => (clearTimeout(silence), signal.removeEventListener("abort", stop));
    signal.addEventListener("abort", stop, { once: true });
    if (signal.aborted) reject(new GivenUp("stopped"));
    else request.send(form);
  });
}
