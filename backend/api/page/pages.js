// The column of pages, the small ones beside it, and the way to any place on them.

import { find, make } from "./dom.js";
import { say } from "./language.js";
import { LazyPicture } from "./pictures.js";
import { Sheet } from "./sheet.js";

const ZOOMS = [0.5, 0.75, 1, 1.25, 1.5, 2, 3];

let sheets = new Map(); // page number -> Sheet
let small = new Map(); // page number -> LazyPicture
let pictureOf = () => "";
let zoom = ZOOMS.indexOf(1);
let onBack = () => {};

const scroller = find("pages-scroll");
const near = watch(scroller, "100% 0px", (number) => sheets.get(number));
const nearSmall = watch(find("thumbnails"), "50% 50%", (number) => small.get(number));
const middle = new IntersectionObserver(
  (entries) => entries.filter((one) => one.isIntersecting).forEach((one) => current(Number(one.target.dataset.number))),
  { root: scroller, rootMargin: "-49% 0px -49% 0px" },
);

function watch(root, rootMargin, of) {
  const told = (entries) => {
    for (const { target, isIntersecting } of entries) {
      const lazy = of(Number(target.dataset.number));
      if (isIntersecting) lazy?.enter();
      else lazy?.leave();
    }
  };
  return new IntersectionObserver(told, { root, rootMargin });
}

/** Begin with no pages, whose pictures are at `pathOf(number)`; `back(index)` is called when the reader leaves the mark of an entity. */
export function reset(pathOf, back) {
  for (const observer of [near, nearSmall, middle]) observer.disconnect();
  for (const lazy of [...sheets.values(), ...small.values()]) lazy.leave();
  sheets = new Map();
  small = new Map();
  pictureOf = pathOf;
  onBack = back;
  find("pages-list").replaceChildren();
  find("thumbnails").querySelector("ol").replaceChildren();
  find("thumbnails").hidden = true;
}

/** Show a page, or what became known of it since. Pages may come in any order. */
export function putPage(info) {
  if (sheets.has(info.number)) return sheets.get(info.number).update(info);
  const path = pictureOf(info.number);
  const sheet = new Sheet(path, info, onBack);
  sheets.set(info.number, sheet);
  insert(find("pages-list"), sheet.node);
  insertSmall(path, info);
  near.observe(sheet.node);
  middle.observe(sheet.node);
  return sheet;
}

/** Mark the entities of a document on its pages. */
export function markEntities(entities) {
  const byPage = new Map();
  entities.forEach((entity, index) => {
    for (const { page, box } of entity.places ?? []) {
      if (!byPage.has(page)) byPage.set(page, new Map());
      const found = byPage.get(page);
      if (!found.has(index)) found.set(index, { entity, index, boxes: [] });
      found.get(index).boxes.push(box);
    }
  });
  for (const [number, found] of byPage) sheets.get(number)?.mark([...found.values()]);
}

/** Go to an entity's mark on a page and put the focus there. */
export function goToEntity(index, page) {
  const mark = sheets.get(page)?.markOf(index);
  if (!mark) return goToPage(page);
  find("show-entities").checked = true;
  showLayers();
  scrollTo(mark, "center");
  mark.focus({ preventScroll: true });
}

/** Go to a stretch of text: light it up where it stands. */
export function goToPlaces(places) {
  const page = places[0]?.page;
  const sheet = sheets.get(page);
  if (!sheet) return;
  scrollTo(sheet.spot(places.filter((one) => one.page === page).map((one) => one.box)), "center");
}

/** Light up places that are near, without moving the pages. */
export function lightUp(places) {
  const page = places[0]?.page;
  const sheet = sheets.get(page);
  if (sheet?.near) sheet.spot(places.filter((one) => one.page === page).map((one) => one.box));
}

export function goToPage(number) {
  const sheet = sheets.get(number);
  if (!sheet) return;
  scrollTo(sheet.node, "start");
  scroller.focus({ preventScroll: true });
}

function scrollTo(node, block) {
  const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
  node.scrollIntoView({ block, inline: "nearest", behavior: still ? "auto" : "smooth" });
}

function insert(list, node) {
  const number = Number(node.dataset.number);
  const after = [...list.children].reverse().find((one) => Number(one.dataset.number) < number);
  if (after) after.after(node);
  else list.prepend(node);
}

function insertSmall(path, { number, width, height }) {
  const image = make("img", { hidden: true, alt: "", draggable: "false" });
  const surface = make("span", { class: "surface" }, image);
  surface.style.aspectRatio = width > 0 && height > 0 ? `${width} / ${height}` : "1 / 1.4142";
  const button = make("button", { type: "button", onclick: () => goToPage(number) }, surface, make("span", {}, String(number)));
  say(button, "go_to_page", { page: number }, "aria-label");
  const node = make("li", { "data-number": number }, button);
  small.set(number, new LazyPicture(image, `${path}?dpi=50`, { isQuiet: true }));
  insert(find("thumbnails").querySelector("ol"), node);
  find("thumbnails").hidden = small.size < 2;
  nearSmall.observe(node);
}

function current(number) {
  for (const one of find("thumbnails").querySelectorAll("[aria-current]")) one.removeAttribute("aria-current");
  const item = find("thumbnails").querySelector(`li[data-number="${number}"]`);
  item?.querySelector("button").setAttribute("aria-current", "true");
  if (item) keepInView(item);
}

function keepInView(item) {
  const rail = find("thumbnails");
  const above = item.offsetTop - rail.scrollTop;
  if (above < 0 || above + item.offsetHeight > rail.clientHeight) rail.scrollTop = item.offsetTop - rail.clientHeight / 2;
  const before = item.offsetLeft - rail.scrollLeft;
  if (before < 0 || before + item.offsetWidth > rail.clientWidth) rail.scrollLeft = item.offsetLeft - rail.clientWidth / 2;
}

function showLayers() {
  find("pages-list").classList.toggle("no-words", !find("show-words").checked);
  find("pages-list").classList.toggle("no-entities", !find("show-entities").checked);
}

function showZoom() {
  find("pages-list").style.width = `${ZOOMS[zoom] * 100}%`;
  say(find("zoom-level"), "{part:percent}", { part: ZOOMS[zoom] });
  find("zoom-out").disabled = zoom === 0;
  find("zoom-in").disabled = zoom === ZOOMS.length - 1;
}

/** Connect the tools above the pages. */
export function startPages() {
  find("show-words").addEventListener("change", showLayers);
  find("show-entities").addEventListener("change", showLayers);
  for (const [id, step] of [["zoom-out", -1], ["zoom-in", 1]]) {
    find(id).addEventListener("click", () => {
      zoom = Math.max(0, Math.min(ZOOMS.length - 1, zoom + step));
      showZoom();
    });
  }
  showZoom();
}

/** Draw the marks anew: their names are in the language of the page. */
export function redrawPages() {
  for (const sheet of sheets.values()) sheet.redraw();
}
