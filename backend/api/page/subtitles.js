// Subtitles of a transcript as SubRip and WebVTT, cut as backend/speech/subtitles.py cuts them: a test compares.

const LINE_CHARS = 42;
const CUE_LINES = 2;
const CUE_MS = 7000;
const MIN_CUE_MS = 1000;
const MS_PER_CHAR = 50; // 20 columns a second
const JOINED_PAUSE_MS = 2000; // up to which two phrases may share a cue
const CLAUSE_END = /[,;:…、，；：]$/;
const CLAUSE_CHARS = LINE_CHARS / 2; // a cue this long ends with its clause
const CLAUSE_WORTH = 10; // columns by which the parts of a phrase may differ more, for the sake of an end of a clause
const WIDE = /[\u2e80-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff01-\uff60\u{20000}-\u{3ffff}]/gu; // twice as wide

export const srt = (segments) =>
  cues(segments).map(({ start, end, lines }, index) => `${index + 1}\n${time(start, ",")} --> ${time(end, ",")}\n${lines.join("\n").replaceAll("-->", "→")}\n\n`).join("");

export const vtt = (segments) =>
  `WEBVTT\n\n${cues(segments).map(({ start, end, lines }) => `${time(start, ".")} --> ${time(end, ".")}\n${escaped(lines.join("\n"))}\n\n`).join("")}`;

/** Of segments {start, end, delta, words}; each cue begins at the end of the one before or later, in milliseconds. */
function cues(segments) {
  const runs = shared(segments.flatMap((segment) => cut(timedWords(segment))));
  let last = 0;
  return runs.map((words, index) => {
    const start = Math.max(last, startOf(words));
    const free = index + 1 < runs.length ? startOf(runs[index + 1]) : Infinity;
    const end = Math.max(endOf(words), Math.min(start + needed(words), free));
    last = Math.max(start + 1, Math.min(end, start + CUE_MS));
    return { start, end: last, lines: balanced(words) };
  });
}

/** The same, but one that has too little time shares a cue with the one that it stands next to. */
function shared(runs) {
  const found = [];
  runs.forEach((words, index) => {
    const before = found.at(-1);
    const after = runs[index + 1];
    if (before && (isCramped(before, words) || isCramped(words, after)) && mayJoin(before, words)) {
      const isNearer = after && mayJoin(words, after) && pause(words, after) < pause(before, words);
      if (isCramped(before, words) || !isNearer) {
        found[found.length - 1] = [...before, ...words];
        return;
      }
    }
    found.push(words);
  });
  return found;
}

/** Whether a cue cannot be read before the next one begins. */
const isCramped = (words, after) => Boolean(after) && startOf(after) - startOf(words) < needed(words);

function mayJoin(words, after) {
  const both = [...words, ...after];
  return pause(words, after) <= JOINED_PAUSE_MS && endOf(both) - startOf(both) <= CUE_MS && filled(both).length <= CUE_LINES;
}

const pause = (words, after) => startOf(after) - endOf(words);
const needed = (words) => Math.max(MIN_CUE_MS, MS_PER_CHAR * columns(words));
const startOf = (words) => Math.round(words[0].start * 1000);
const endOf = (words) => Math.round(words.at(-1).end * 1000);

/** Of a line that holds them all. */
const columns = (words) => words.reduce((sum, { word, joined }, index) => sum + size(word) + (index && !joined ? 1 : 0), 0);

/** Words of at most a line; those without times share the segment's by their letters. */
function timedWords(segment) {
  return (segment.words?.length ? placed(segment) : sharedOut(segment)).flatMap(withinLine);
}

/** The words with whether each follows the one before it without a space, as the text has it. */
function placed({ delta, words }) {
  let end = 0;
  return words.map(({ word, start, end: end_s }) => {
    const at = delta.indexOf(word, end);
    const joined = end > 0 && at === end;
    if (at >= 0) end = at + word.length;
    return { word, start, end: end_s, joined };
  });
}

function sharedOut({ start, end, delta }) {
  const texts = delta.split(/\s+/).filter(Boolean);
  const each = (end - start) / (texts.reduce((sum, text) => sum + size(text) + 1, 0) || 1);
  let before = 0;
  return texts.map((word) => {
    const after = before + size(word) + 1;
    const timed = { word, start: start + before * each, end: start + after * each, joined: false };
    before = after;
    return timed;
  });
}

function withinLine({ word, start, end, joined }) {
  const letters = [...word];
  const most = size(word) === letters.length ? LINE_CHARS : LINE_CHARS / 2;
  const count = Math.ceil(letters.length / most);
  const each = (end - start) / Math.max(1, count);
  return Array.from({ length: count }, (_, index) => ({
    word: letters.slice(index * most, (index + 1) * most).join(""),
    start: start + index * each,
    end: start + index * each + each,
    joined: index > 0 || joined,
  }));
}

/** Runs of words that fit a cue; where that would leave a rest too short to be read, the two are made about equal. */
function cut(words) {
  const runs = [];
  for (let first = 0; first < words.length; ) {
    const most = fitting(words, first);
    let end = most === words.length ? most : goodEnd(words, first, most);
    if (end < words.length && endOf(words) - startOf(words.slice(end)) < MIN_CUE_MS) end = middle(words, first, most);
    runs.push(words.slice(first, end));
    first = end;
  }
  return runs;
}

/** The index after the last word that still fits a cue from `first`; one word always does. */
function fitting(words, first) {
  let end = first + 1;
  const fits = () => words[end].end - words[first].start <= CUE_MS / 1000 && filled(words.slice(first, end + 1)).length <= CUE_LINES;
  while (end < words.length && fits()) end += 1;
  return end;
}

/** Where to end a cue that cannot hold the rest: after a clause, else where it is full. */
function goodEnd(words, first, most) {
  for (let end = most; end > first; end -= 1) {
    if (columns(words.slice(first, end)) >= CLAUSE_CHARS && CLAUSE_END.test(words[end - 1].word)) return end;
  }
  return most;
}

/** Where what is left is cut in two about equal parts, rather after a clause. */
function middle(words, first, most) {
  const whole = columns(words.slice(first));
  const unequal = (end) => Math.abs(2 * columns(words.slice(first, end)) - whole) - 2 * (CLAUSE_END.test(words[end - 1].word) ? CLAUSE_WORTH : 0);
  let best = first + 1;
  for (let end = first + 2; end <= most; end += 1) if (unequal(end) < unequal(best)) best = end;
  return best;
}

/** The words in lines, each as full as it can be. */
function filled(words, most = LINE_CHARS) {
  const lines = [];
  for (const { word, joined } of words) {
    const space = joined ? "" : " ";
    if (lines.length && size(lines.at(-1)) + space.length + size(word) <= most) lines.push(`${lines.pop()}${space}${word}`);
    else lines.push(word);
  }
  return lines;
}

/** The lines of a cue, two of them about equally long. */
function balanced(words) {
  const lines = filled(words);
  if (lines.length !== CUE_LINES) return lines;
  const length = lines.reduce((sum, line) => sum + size(line), 1);
  for (let most = Math.floor(length / CUE_LINES); most < LINE_CHARS; most += 1) {
    const narrower = filled(words, most);
    if (narrower.length === CUE_LINES && Math.max(...narrower.map(size)) <= LINE_CHARS) return narrower;
  }
  return lines;
}

/** Columns: wide letters take two. */
const size = (text) => [...text].length + (text.match(WIDE)?.length ?? 0);
const escaped = (text) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
const two = (value) => String(value).padStart(2, "0");

function time(milliseconds, separator) {
  const seconds = Math.floor(milliseconds / 1000);
  const whole = [Math.floor(seconds / 3600), Math.floor(seconds / 60) % 60, seconds % 60].map(two).join(":");
  return `${whole}${separator}${String(milliseconds % 1000).padStart(3, "0")}`;
}
