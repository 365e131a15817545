// Tabs as the ARIA Authoring Practices have them: arrows move, the chosen one alone is in the order of Tab.

import { find } from "./dom.js";

const NAMES = ["overview", "entities", "text", "downloads"];

export function startTabs() {
  for (const name of NAMES) {
    const tab = find(`tab-${name}`);
    tab.addEventListener("click", () => select(name));
    tab.addEventListener("keydown", (event) => {
      const to = next(event.key, NAMES.indexOf(name));
      if (to === null) return;
      event.preventDefault();
      select(NAMES[to]);
      find(`tab-${NAMES[to]}`).focus();
    });
  }
  select(NAMES[0]);
}

export function select(name) {
  for (const one of NAMES) {
    const chosen = one === name;
    find(`tab-${one}`).setAttribute("aria-selected", String(chosen));
    find(`tab-${one}`).tabIndex = chosen ? 0 : -1;
    find(`panel-${one}`).hidden = !chosen;
  }
}

function next(key, index) {
  const last = NAMES.length - 1;
  const to = { ArrowRight: index + 1, ArrowLeft: index - 1, Home: 0, End: last }[key];
  if (to === undefined) return null;
  return to < 0 ? last : to > last ? 0 : to;
}
