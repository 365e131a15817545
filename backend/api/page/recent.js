// The stored documents on the first screen, the newest first; each is opened again by its address.

import { BASE, authorization } from "./connection.js";
import { find, make } from "./dom.js";
import { language, later, quote, say } from "./language.js";
import { shownValue } from "./local_values.js";

const LISTED = 20;
let last = ""; // id of the last one that is shown

/** Show the newest documents, if there are any. Nobody is asked for a key: who has given one sees what is his. */
export async function showRecent() {
  const lines = await read("");
  find("recent-list").replaceChildren(...lines);
  find("recent").hidden = !lines.length;
}

/** The lines of the documents behind that with the id `after`, or of the newest. */
async function read(after) {
  const query = new URLSearchParams({ limit: LISTED, ...(after && { after }) });
  const response = await fetch(new URL(`documents?${query}`, BASE), { headers: authorization(), cache: "no-store" }).catch(() => null);
  const { data = [], has_more: more = false } = response?.ok ? await response.json().catch(() => ({})) : {};
  last = data.at(-1)?.id ?? "";
  find("recent-more").hidden = !more;
  return data.map(line);
}

/** A paper to book leads to where it is checked, anything else to what was read. */
function line({ id, filename, state, kind, created_at: since, page_count: pages, documents: [first] }) {
  const { VendorName: vendor, InvoiceTotal: total } = first?.fields ?? {};
  const facts = make(
    "span",
    { class: "dots quiet" },
    ...(vendor ? [quote(make("span"), vendor.value)] : []),
    ...(total ? [say(make("span", { class: "number" }), "{value}", { value: later((value) => shownValue("InvoiceTotal", value), total.value) })] : []),
    ...(first?.kind ? [say(make("span"), `state_${state}`)] : []),
    ...(kind === "audio" ? [] : [say(make("span"), "pages_of_file", { n: pages })]),
    say(make("time"), "{date}", { date: later(localDay, since) }),
  );
  return make("li", {}, quote(make("a", { href: first?.kind ? `#document=${id}:0` : `#document=${id}` }), filename), " ", facts);
}

const localDay = (since_s) => new Date(since_s * 1000).toLocaleDateString(language());

find("recent-more").addEventListener("click", async () => find("recent-list").append(...(await read(last))));
