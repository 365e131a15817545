// The pages beside the validation form: pictures with their words, which are clicked or drawn over to take their text.

import { find, make, makeSvg } from "./dom.js";
import { say } from "./language.js";
import { drawSpot, drawWords, drawing } from "./marks.js";
import { LazyPicture } from "./pictures.js";
import { picturePath } from "./stored_document.js";

const MARGIN = 4; // beside a value that is cut out, in units of the page; above and below lines are near
const MARGIN_ABOVE = 1;

let sheets = new Map(); // page number -> {surface, over, info, picture, image, crops}
let observer = null;

export function emptyPages() {
  observer?.disconnect();
  for (const { picture } of sheets.values()) picture.leave();
  sheets = new Map();
}

/** Show pages with their words; `take({text, page, boxes, start, end})` gets the words that were chosen. */
export function showPages(id, pages, take) {
  emptyPages();
  observer = new IntersectionObserver(seen, { root: find("validation-pages"), rootMargin: "100% 0px" });
  find("validation-pages").replaceChildren(...pages.map((info) => sheetOf(id, info, take)));
}

function seen(entries) {
  for (const { target, isIntersecting } of entries) {
    const { picture } = sheets.get(Number(target.dataset.page)) ?? {};
    if (isIntersecting) picture?.enter();
    else picture?.leave();
  }
}

function sheetOf(id, info, take) {
  const image = say(make("img", { hidden: true, draggable: "false" }), "page_picture", { page: info.number }, "alt");
  const surface = make("div", { class: "surface", "data-page": info.number }, image);
  const isDrawn = info.width > 0 && info.height > 0;
  surface.style.aspectRatio = isDrawn ? `${info.width} / ${info.height}` : "1 / 1.4142";
  const picture = new LazyPicture(image, `${picturePath(id, info.number)}?dpi=130`);
  const over = isDrawn ? drawing(info) : makeSvg("svg");
  if (isDrawn) {
    over.append(drawWords(info.words ?? []));
    surface.append(over);
    choosing(over, info, take);
  }
  const sheet = { surface, over, info, picture, image, crops: new Map() };
  image.addEventListener("load", () => sheet.crops.forEach((boxes, canvas) => cut(sheet, canvas, boxes)));
  sheets.set(info.number, sheet);
  observer.observe(surface);
  return surface;
}

/** Take the words between where the pointer went down and where it came up. */
function choosing(over, info, take) {
  const rects = [...over.querySelectorAll(".words rect")];
  let first = -1;
  const mark = (last) => rects.forEach((rect, at) => rect.classList.toggle("chosen", last >= 0 && at >= Math.min(first, last) && at <= Math.max(first, last)));
  over.addEventListener("pointerdown", (event) => {
    event.preventDefault(); // the input keeps the focus
    first = rects.indexOf(event.target);
    mark(first);
  });
  over.addEventListener("pointermove", (event) => first >= 0 && rects.includes(event.target) && mark(rects.indexOf(event.target)));
  over.addEventListener("pointerup", (event) => {
    const last = rects.indexOf(event.target);
    if (first >= 0 && last >= 0) take(placed(info, info.words.slice(Math.min(first, last), Math.max(first, last) + 1)));
    first = -1;
    mark(-1);
  });
}

function placed({ number, start }, words) {
  return {
    text: words.map((word) => word.text).join(" "),
    page: number,
    boxes: words.map((word) => word.box),
    start: start + words[0].start,
    end: start + words.at(-1).end,
  };
}

/** Forget the canvases of values that are drawn anew. */
export function forgetCuts() {
  for (const { crops } of sheets.values()) crops.clear();
}

/** Show on `canvas` what stands at a value's place, as soon as its page is there. Whether it has a place. */
export function cutOut(canvas, { page, boxes }) {
  const sheet = sheets.get(page);
  if (!sheet?.info.width || !boxes?.length) return false;
  sheet.crops.set(canvas, boxes);
  if (sheet.image.naturalWidth) cut(sheet, canvas, boxes);
  return true;
}

function cut({ image, info }, canvas, boxes) {
  const scale = image.naturalWidth / info.width;
  const edge = (side, of) => of(...boxes.map((box) => box[side]));
  const [left, top] = [edge(0, Math.min) - MARGIN, edge(1, Math.min) - MARGIN_ABOVE];
  const [width, height] = [edge(2, Math.max) + MARGIN - left, edge(3, Math.max) + MARGIN_ABOVE - top];
  canvas.width = Math.max(1, Math.round(width * scale));
  canvas.height = Math.max(1, Math.round(height * scale));
  canvas.getContext("2d").drawImage(image, left * scale, top * scale, width * scale, height * scale, 0, 0, canvas.width, canvas.height);
}

/** Light up where a value stands, alone, and bring it into view. */
export function light(field) {
  for (const { over } of sheets.values()) for (const old of over.querySelectorAll(".spot")) old.remove();
  const sheet = sheets.get(field?.page);
  if (!sheet || !field.boxes?.length) return;
  const spot = drawSpot(field.boxes);
  sheet.over.append(spot);
  spot.scrollIntoView({ block: "nearest", inline: "nearest" });
}
