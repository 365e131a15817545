// The transcript of a recording: it grows while it is made, plays from any word, and can be saved as text or subtitles.

import { copy } from "./clipboard.js";
import { find, icon, make } from "./dom.js";
import { base, save } from "./downloads.js";
import { clock, duration, languageName, later, quote, say } from "./language.js";
import { announce, serviceWords, showNotice } from "./notices.js";
import { Player } from "./player.js";
import { passage, timeButton } from "./spoken_text.js";
import { srt, vtt } from "./subtitles.js";

const FORMATS = [["txt", "download_text", () => `${wholeText()}\n`], ["srt", "download_srt", () => srt(segments)], ["vtt", "download_vtt", () => vtt(segments)]];
// What the service says of what is missing, in the language of the page.
const REASONS = [
  [/no sound in it/, "why_no_sound"],
  [/is silent/, "why_silent"],
  [/nobody speaks in/, "why_nobody"],
  [/^of [\d.]+ s .*made no words/, "why_unheard"],
  [/made no words/, "why_no_words"],
  [/was not said/, "why_not_said"],
  [/could not be transcribed/, "why_failed"],
  [/damaged|packets could not be decoded|could not be read after|announces .* s of sound|bytes are missing/, "why_damaged"],
];

let name = "";
let segments = []; // as the events told them
let passages = []; // {node, words} of each

const player = new Player(() => showNotice("playback", "playback_failed"));
const playFrom = (seconds) => plays && player.playFrom(seconds);
let plays = false; // the recording is at hand

/** Begin with an empty transcript of `file`, which can be played at once; null where only its name is left. */
export function openTranscript(file, named = file.name) {
  name = named;
  plays = Boolean(file);
  const list = make("ol", { id: "segments", class: "segments" });
  const scroll = say(make("div", { id: "segments-scroll", class: "segments-scroll", tabindex: "0", role: "region" }, list), "transcript", {}, "aria-label");
  const hint = say(make("p", { id: "play-hint", class: "quiet", hidden: true }), "play_hint");
  const listening = make("div", { class: "listening" }, make("div", { class: "player" }, player.audio, hint), scroll);
  const facts = make("section", { id: "heard-facts", class: "heard-facts", hidden: true });
  find("heard").replaceChildren(listening, say(facts, "about_transcript", {}, "aria-label"));
  find("heard").hidden = false;
  [segments, passages] = [[], []];
  player.audio.hidden = !plays;
  if (plays) player.load(file);
}

export function closeTranscript() {
  player.release();
  [segments, passages] = [[], []];
  find("heard").hidden = true;
}

export const heardSome = () => segments.length > 0;

/** Show a segment. After a broken connection they come again from the first one, and mostly are the same. */
export function putSegment(index, segment) {
  const known = segments[index];
  if (known && known.start === segment.start && known.delta === segment.delta) return;
  for (const { node } of passages.splice(index)) node.remove();
  segments = [...segments.slice(0, index), segment];
  const { start, language, words = [] } = segment;
  const tellsLanguage = language !== (segments[index - 1] ?? segment).language;
  const added = passage({ start, language, text: segment.delta.trim(), words }, { playFrom, tellsLanguage });
  passages.push(added);
  find("segments").append(added.node);
  find("play-hint").hidden = !plays;
  player.follow(passages.flatMap((one) => one.words));
}

/** Show what is known in the end: language, why something is missing, what was left out, and files to save. */
export function endTranscript(done) {
  const { languages = [], dropped = [], why = "" } = done ?? {};
  if (done && !heardSome()) find("segments").replaceChildren(say(make("li", { class: "quiet" }), "transcript_empty"));
  const parts = [why ? reasons(why) : null, heardSome() ? files() : null, done ? about(done, languages) : null, dropped.length ? leftOut(dropped) : null];
  find("heard-facts").replaceChildren(...parts.filter(Boolean));
  find("heard-facts").hidden = false;
}

const card = (key, ...children) => make("section", { class: "card" }, say(make("h2"), key), ...children);

function reasons(why) {
  const parts = why.split("; ").map((part) => [REASONS.find(([pattern]) => pattern.test(part))?.[1], part]);
  const known = new Set(parts.map(([key]) => key).filter(Boolean));
  const unknown = parts.filter(([key]) => !key).map(([, part]) => part);
  const items = [...known].map((key) => say(make("li"), key));
  if (unknown.length) items.push(make("li", {}, say(make("span"), "why_other"), serviceWords(unknown.join("; "))));
  return make("section", { class: "card notice" }, icon("warning"), make("div", { class: "notice-text" }, say(make("h2"), "why_title"), make("ul", {}, ...items)));
}

function files() {
  const buttons = FORMATS.map(([ending, key, write]) => {
    const button = make("button", { type: "button", onclick: () => download(write(), ending), "data-ending": ending }, icon("download"));
    return make("li", {}, (button.append(say(make("span"), key)), button));
  });
  const copying = make("button", { type: "button", onclick: () => copy(wholeText(), copying) }, icon("copy"));
  copying.append(say(make("span"), "copy_text"));
  return card("tab_downloads", make("ul", { class: "heard-files" }, ...buttons, make("li", {}, copying)));
}

function download(text, ending) {
  const file = `${base(name)}.${ending}`;
  save(new Blob([text], { type: "text/plain;charset=utf-8" }), file);
  announce("download_done", { name: file });
}

/** The text as it was heard: each piece but the first begins with its space. */
const wholeText = () => segments.map(({ delta }) => delta).join("").trim();

function about({ duration: length_s, speech_s, language_score: score, model }, languages) {
  const [first, ...others] = languages.map(({ code }) => code);
  const headline = make("p", { class: "headline" });
  if (first) say(headline, "{name}", { name: later(languageName, first) });
  else say(headline, "unknown_language");
  const sure = first && Number.isFinite(score) ? say(make("p", { class: "quiet" }), "confidence", { score }) : null;
  const names = () => others.map(languageName).join(", ");
  const rows = [
    ...(others.length ? [say(make("dt"), "other_languages"), say(make("dd"), "{names}", { names })] : []),
    ...[["length", length_s], ["speech_length", speech_s]].flatMap(([key, value]) => [say(make("dt"), key), say(make("dd"), "{spent}", { spent: later(duration, value) })]),
    ...(model ? [say(make("dt"), "model"), quote(make("dd"), model)] : []),
  ];
  return card("language", headline, sure, make("dl", { class: "facts" }, ...rows));
}

function leftOut(dropped) {
  const items = dropped.map(({ start, text, why }) => {
    const said = make("div", {}, quote(make("p"), text), serviceWords(why));
    return make("li", { class: "spoken-passage" }, timeButton(start, playFrom), said);
  });
  const summary = say(make("summary"), "dropped_title", { n: dropped.length });
  const details = make("details", { class: "dropped" }, summary, say(make("p", { class: "quiet" }), "dropped_why"), make("ol", {}, ...items));
  return make("section", { class: "card" }, say(details, "dropped_title", { n: dropped.length }, "aria-label"));
}

/** How long the recording is, as far as that is known: "3:20". */
export const lengthOf = (done) => clock(done.duration ?? 0);
