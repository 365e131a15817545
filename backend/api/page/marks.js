// What lies over the picture of a page: boxes of words, entities and a sentence, in the units of the page.

import { make, makeSvg } from "./dom.js";
import { language, t, typeName } from "./language.js";

export const UNSURE = 0.6; // words below are marked; chosen by eye, not measured

// Eight hues that stay apart in both schemes; style.css gives them their colours.
const HUES = {
  PER: "person", ORG: "organisation", LOC: "place", POSTCODE: "place", DATE: "date", MONEY: "money", PERCENT: "money",
  IBAN: "account", BIC: "account", CCC: "account", NIF: "id", NIE: "id", CIF: "id", VAT: "id", INVOICE_NUMBER: "id",
  EMAIL: "contact", URL: "contact", PHONE: "contact",
};

export const hueOf = (type) => `hue-${HUES[type] ?? "other"}`;

/** A drawing over a page of `width` x `height` page units. */
export function drawing({ width, height }) {
  return makeSvg("svg", { class: "marks", viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none" });
}

/** The words as boxes that tell on hover what was read; screen readers have the text itself. */
export function drawWords(words) {
  const group = makeSvg("g", { class: "words", "aria-hidden": "true" });
  for (const { text, box, confidence } of words) {
    const title = makeSvg("title");
    const sure = new Intl.NumberFormat(language(), { style: "percent" }).format(confidence);
    title.textContent = `${text} · ${sure}`;
    group.append(makeSvg("rect", { ...rectangle(box), class: confidence < UNSURE ? "low" : null }, title));
  }
  return group;
}

/** The entities of a page; `onBack(index)` is called when the reader is done with one. */
export function drawEntities(entities, page, onBack) {
  return makeSvg("g", { class: "entities" }, ...entities.map(({ entity, index, boxes }) => drawEntity(entity, index, boxes, page, onBack)));
}

function drawEntity(entity, index, boxes, page, onBack) {
  const label = t("mark", { type: typeName(entity.type), text: entity.text, page });
  const mark = makeSvg(
    "g",
    { class: `entity ${hueOf(entity.type)}`, role: "button", tabindex: -1, "aria-label": label, "data-entity": index },
    ...boxes.map((box) => makeSvg("rect", { ...rectangle(box, 1.5), rx: 1.5 })),
  );
  const title = makeSvg("title");
  title.textContent = `${typeName(entity.type)}: ${entity.text}`;
  mark.append(title);
  mark.addEventListener("click", () => onBack(index));
  mark.addEventListener("keydown", (event) => {
    if (["Enter", "Escape", " "].includes(event.key)) {
      event.preventDefault();
      onBack(index);
    }
  });
  return mark;
}

/** A stretch that was asked for, such as a key sentence. */
export function drawSpot(boxes) {
  return makeSvg("g", { class: "spot" }, ...boxes.map((box) => makeSvg("rect", { ...rectangle(box, 2), rx: 2 })));
}

/** The lines of a passage that a search found. */
export function drawPassage(boxes) {
  return makeSvg("g", { class: "passage" }, ...boxes.map((box) => makeSvg("rect", { ...rectangle(box, 1.5), rx: 1.5 })));
}

/** The square of an entity's colour, for lists. */
export const swatch = (type) => make("span", { class: `swatch ${hueOf(type)}`, "aria-hidden": "true" });

function rectangle([left, top, right, bottom], margin = 0) {
  return {
    x: left - margin,
    y: top - margin,
    width: Math.max(0, right - left) + 2 * margin,
    height: Math.max(0, bottom - top) + 2 * margin,
  };
}
