// A hit in a recording: its transcript at the passage that was found, and the recording, played from its seconds.

import { downloadFile, readChunks } from "./collections.js";
import { GivenUp, Lost, Problem } from "./connection.js";
import { make } from "./dom.js";
import { textOf } from "./hits.js";
import { clock, say } from "./language.js";
import { Player } from "./player.js";
import { passage } from "./spoken_text.js";

const player = new Player(() => player.audio.after(say(make("p", { class: "notice", role: "alert" }), "playback_failed")));
let loaded = null; // id of the file in the player

/**
 * Put the hit into `body` and, where `plays`, play it; only then is the recording fetched. `fail(error)` is told what
 * goes wrong with that, `center(node)` is asked to bring the passage into view.
 */
export function showRecording(store, hit, { body, signal, plays, fail, center }) {
  const playFrom = (seconds) => listen(seconds).catch((error) => error instanceof GivenUp || fail(error));
  const listen = async (seconds) => {
    if (loaded !== hit.file_id) {
      player.audio.before(say(wait, "recording_loading"));
      const blob = await downloadFile(hit.file_id, signal).finally(() => wait.remove());
      player.load(blob);
      player.follow(list.words);
      loaded = hit.file_id;
    }
    if (signal.aborted) return;
    player.audio.hidden = false;
    start.hidden = true;
    player.playFrom(seconds);
  };
  const wait = make("p", { class: "quiet", role: "status" });
  const start = make("button", { type: "button", class: "primary", id: "hit-play", onclick: () => playFrom(hit.start_s) });
  const list = { node: make("ol", { class: "segments" }), words: [] };
  body.replaceChildren(make("div", { class: "hit-spoken" }, make("div", { class: "player" }, player.audio, say(start, "play_from", { time: clock(hit.start_s) })), list.node));
  player.audio.hidden = loaded !== hit.file_id;
  signal.addEventListener("abort", () => player.audio.pause(), { once: true });
  fill(list, [wordsOf(hit)], hit, playFrom, center);
  readAround(store, hit, signal).then((chunks) => !signal.aborted && chunks.length && fill(list, chunks, hit, playFrom, center), quietly);
  if (plays) playFrom(hit.start_s);
  else if (loaded === hit.file_id) player.seek(hit.start_s);
}

function quietly(error) {
  if (!(error instanceof Problem || error instanceof Lost || error instanceof GivenUp)) throw error; // the passage itself is there
}

function fill(list, chunks, hit, playFrom, center) {
  const passages = chunks.map((chunk) => passage(chunk, { playFrom }));
  const found = passages[chunks.findIndex((chunk) => chunk.isHit)];
  found.node.classList.add("passage-text");
  list.node.replaceChildren(...passages.map(({ node }) => node));
  list.words = passages.flatMap(({ words }) => words);
  if (loaded === hit.file_id) player.follow(list.words);
  center(found.node.querySelector(".found") ?? found.node);
}

/** The hit alone, as the search told it: of its words those of the query have seconds. */
function wordsOf(hit) {
  const letters = [...textOf(hit)];
  const words = (hit.highlights ?? []).flatMap(({ start, end, boxes }) =>
    boxes?.length ? [{ word: letters.slice(start, end).join(""), start: boxes[0].start_s, end: boxes.at(-1).end_s, isFound: true }] : [],
  );
  return { isHit: true, start: hit.boxes?.[0]?.start_s ?? hit.start_s, text: letters.join(""), words };
}

/** The whole transcript as passages, none of which says again what a neighbour says. */
async function readAround(store, hit, signal) {
  const chunks = await readChunks(store, hit.file_id, signal);
  const at = chunks.findIndex((chunk) => chunk.start === hit.start && chunk.text === textOf(hit));
  if (at < 0) return [];
  return chunks.flatMap((chunk, index) => {
    const first = index > at ? Math.max(0, chunks[index - 1].end - chunk.start) : 0;
    const end = index < at ? chunks[index + 1].start - chunk.start : Infinity;
    return spoken(chunk, first, end, index === at ? hit : null);
  });
}

/** The part of a chunk from one code point up to another; none where nothing of it is left. */
function spoken({ text, words = [] }, first, end, hit) {
  const letters = [...text];
  const inside = words.filter((word) => word.start >= first && word.end <= end);
  if (!inside.length && !hit) return [];
  const isFound = (word) => Boolean(hit?.highlights?.some((one) => one.start < word.end && word.start < one.end));
  const placed = inside.map((word) => ({ word: letters.slice(word.start, word.end).join(""), start: word.start_s, end: word.end_s, isFound: isFound(word) }));
  return [{ isHit: Boolean(hit), start: placed[0]?.start ?? hit.start_s, text: letters.slice(first, end).join("").trim(), words: placed }];
}
