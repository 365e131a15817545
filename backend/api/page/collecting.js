// A menu of collections, to which stored documents are added.

import { addFile, createStore, listStores } from "./collections.js";
import { make } from "./dom.js";
import { say } from "./language.js";
import "./library_strings.js";
import { announce, clear, put, tellFaults } from "./notices.js";
import { askName, proposedName } from "./questions.js";

/** The menu; `idsOf()` names the documents that are meant, `into` is where it is told what became of them. */
export function collecting(idsOf, { into }) {
  const guarded = (act) => tellFaults(act, { into });
  const list = make("ul");
  const head = say(make("summary"), "collect");
  const menu = say(make("details", { class: "menu" }, head, list), "collect", {}, "aria-label");
  menu.addEventListener("toggle", () => menu.open && guarded(offer));
  menu.addEventListener("keydown", (event) => event.key === "Escape" && menu.open && close(event));
  return menu;

  function close(event) {
    event.stopPropagation();
    menu.open = false;
    head.focus();
  }

  async function offer() {
    const stores = await listStores();
    const made = say(make("button", { type: "button", onclick: () => guarded(addToNew) }), "store_new");
    list.replaceChildren(...[...stores.map(choice), made].map((button) => make("li", {}, button)));
  }

  function choice(store) {
    const button = make("button", { type: "button", onclick: () => guarded(() => add(store)) });
    return store.name ? say(button, "{name}", { name: store.name }) : say(button, "store_unnamed");
  }

  async function addToNew() {
    const name = await askName("store_new", "store_name", proposedName());
    if (name) await add(await createStore(name));
  }

  async function add({ id: store, name }) {
    menu.open = false;
    const ids = idsOf();
    for (const id of ids) await addFile(store, id);
    clear("collected", { into });
    const link = say(make("a", { href: `#library=${encodeURIComponent(store)}` }), "collect_open");
    put("collected", { class: "notice", into }, say(make("p"), "collected", { n: ids.length, name }), link);
    announce("collected", { n: ids.length, name });
    head.focus();
  }
}
