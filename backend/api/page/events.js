// Server-sent events over fetch, because EventSource cannot send a key. WHATWG HTML, 9.2.6.

import { BASE, GivenUp, Lost, persist, problemOf, withKey } from "./connection.js";

const SILENCE_S = 45; // the service sends a comment every 15 s: three missed are a dead connection

/**
 * Tell `onEvent(name, data)` every event until the one named `end`. A connection that breaks is made again, from the
 * last event on; `onWait` and `onBack` as in `persist`.
 */
export async function follow(path, { signal, onEvent, onWait, onBack }) {
  let lastId = "";
  let lost = false;
  const listen = () =>
    once(path, lastId, signal, {
      onOpen: () => {
        if (lost) onBack();
        lost = false;
      },
      onEvent: (event) => {
        if (event.id !== null) lastId = event.id;
        onEvent(event.name, JSON.parse(event.data));
      },
    });
  const waiting = (...told) => {
    lost = true;
    onWait(...told);
  };
  // A stream that broke after it had told something begins its waits anew.
  for (;;) {
    const before = lastId;
    const ended = await persist(() => listen().catch((error) => restart(error, before !== lastId)), { signal, onWait: waiting });
    if (ended) return;
  }
}

function restart(error, progressed) {
  if (error instanceof Lost && progressed) return false;
  throw error;
}

async function once(path, lastId, signal, { onOpen, onEvent }) {
  const silence = new AbortController();
  const either = AbortSignal.any([signal, silence.signal]);
  const headers = { Accept: "text/event-stream", ...(lastId ? { "Last-Event-ID": lastId } : {}) };
  let timer;
  const heard = () => {
    clearTimeout(timer);
    timer = setTimeout(() => silence.abort(), SILENCE_S * 1000);
  };
  heard();
  try {
    const send = (key) => fetch(new URL(path, BASE), { headers: { ...headers, ...key }, signal: either, cache: "no-store" });
    const response = await withKey(send);
    if (!response.ok) throw await problemOf(response);
    onOpen();
    if (response.status === 204) return true; // the end was told before the line broke
    for await (const event of eventsOf(response.body, heard)) {
      onEvent(event);
      if (event.name === "end") return true;
    }
  } catch (error) {
    if (signal.aborted) throw new GivenUp("stopped");
    if (error instanceof TypeError || error.name === "AbortError") throw new Lost(error.message);
    throw error;
  } finally {
    clearTimeout(timer);
    silence.abort();
  }
  throw new Lost("the stream ended before the job did");
}

/** The events of a stream of bytes. */
async function* eventsOf(body, heard) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    heard();
    const parts = (rest + value).replaceAll("\r\n", "\n").split("\n\n");
    rest = parts.pop();
    for (const part of parts) {
      const event = eventOf(part);
      if (event) yield event;
    }
  }
}

/** The event that a block of lines is, or null for a comment. */
export function eventOf(part) {
  const event = { name: "message", id: null, data: [] };
  for (const line of part.split("\n")) {
    const [, field, value] = /^([^:]*):? ?(.*)$/s.exec(line);
    if (field === "event") event.name = value;
    else if (field === "id") event.id = value;
    else if (field === "data") event.data.push(value);
  }
  return event.data.length ? { ...event, data: event.data.join("\n") } : null;
}
