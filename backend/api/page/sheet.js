// One page as it is shown: its head, its picture and the marks over it, which are there only while it is near.

import { find, make } from "./dom.js";
import { quote, say } from "./language.js";
import { drawEntities, drawSpot, drawWords, drawing } from "./marks.js";
import { LazyPicture } from "./pictures.js";

export class Sheet {
  /** `info` is a page as events or the result tell it; `found` its entities: {entity, index, boxes}. */
  constructor(path, info, onBack) {
    this.info = info;
    this.found = [];
    this.near = false;
    this.onBack = onBack;
    this.image = make("img", { hidden: true, draggable: "false" });
    say(this.image, "page_picture", { page: info.number }, "alt");
    this.picture = new LazyPicture(this.image, `${path}?dpi=110`);
    this.surface = make("div", { class: "surface" }, this.image);
    this.head = make("header", { class: "page-head" });
    const title = `page-${info.number}-title`;
    this.title = say(make("h2", { id: title }), "page", { page: info.number });
    const article = make("article", { "aria-labelledby": title }, this.head, this.surface);
    this.node = make("li", { class: "page", id: `page-${info.number}`, "data-number": info.number }, article);
    this.tell();
  }

  /** Take what became known since: words with boxes, the final text. */
  update(info) {
    this.info = { ...this.info, ...info };
    this.tell();
    this.redraw();
  }

  mark(found) {
    this.found = found;
    this.redraw();
  }

  tell() {
    const { source, confidence, rotation, words, width, height, part } = this.info;
    const count = Array.isArray(words) ? words.length : words;
    this.surface.style.aspectRatio = width > 0 && height > 0 ? `${width} / ${height}` : "1 / 1.4142";
    this.head.replaceChildren(
      this.title,
      ...(part ? [quote(make("span"), part)] : []), // the sheet, slide, picture or attachment
      say(make("span", { class: `badge ${source === "ocr" ? "ocr" : "layer"}` }), source === "ocr" ? "by_ocr" : "by_text_layer"),
      ...(Number.isFinite(confidence) ? [say(make("span"), "confidence", { score: confidence })] : []),
      ...(rotation ? [say(make("span"), "turned", { degrees: rotation })] : []),
      ...(Number.isFinite(count) ? [say(make("span", { class: "quiet" }), "word_count", { n: count })] : []),
    );
  }

  enter() {
    this.near = true;
    this.picture.enter();
    this.redraw();
  }

  leave() {
    this.near = false;
    this.picture.leave();
    this.surface.querySelector(".failed-picture")?.remove();
    this.redraw();
  }

  redraw() {
    if (this.surface.contains(document.activeElement)) return; // the reader is on a mark
    this.surface.querySelector(".marks")?.remove();
    const { words, width, height, number } = this.info;
    if (!this.near || !(width > 0 && height > 0)) return;
    const over = drawing(this.info);
    if (Array.isArray(words)) over.append(drawWords(words));
    over.append(drawEntities(this.found, number, this.onBack));
    this.surface.append(over);
  }

  /** The mark of an entity, drawn if it was not. */
  markOf(index) {
    if (!this.near) this.enter();
    return this.surface.querySelector(`[data-entity="${index}"]`);
  }

  /** Light up a stretch; returns what to scroll to. */
  spot(boxes) {
    if (!this.near) this.enter();
    const over = this.surface.querySelector(".marks");
    if (!over || !boxes.length) return this.node;
    const spot = drawSpot(boxes);
    for (const old of find("pages-list").querySelectorAll(".spot")) old.remove();
    over.append(spot);
    return spot;
  }
}
