// Tabs as the ARIA Authoring Practices have them: arrows move, the chosen one alone is in the order of Tab.

import { find } from "./dom.js";

const NAMES = ["overview", "fields", "tables", "entities", "text", "downloads"];

export const startTabs = () => connectTabs(NAMES);

export const select = (name) => selectOf(NAMES, name);

/** Connect the tabs `tab-<name>` with their panels `panel-<name>`, the first one chosen. */
export function connectTabs(names) {
  for (const name of names) {
    const tab = find(`tab-${name}`);
    tab.addEventListener("click", () => selectOf(names, name));
    tab.addEventListener("keydown", (event) => {
      const to = next(event.key, names.indexOf(name), names.length - 1);
      if (to === null) return;
      event.preventDefault();
      selectOf(names, names[to]);
      find(`tab-${names[to]}`).focus();
    });
  }
  selectOf(names, names[0]);
}

/** Choose one of the tabs `names`. */
export function selectOf(names, name) {
  for (const one of names) {
    const chosen = one === name;
    find(`tab-${one}`).setAttribute("aria-selected", String(chosen));
    find(`tab-${one}`).tabIndex = chosen ? 0 : -1;
    find(`panel-${one}`).hidden = !chosen;
  }
}

function next(key, index, last) {
  const to = { ArrowRight: index + 1, ArrowLeft: index - 1, Home: 0, End: last }[key];
  if (to === undefined) return null;
  return to < 0 ? last : to > last ? 0 : to;
}
