// The newest stored documents on the first screen; each is opened again by its address.

import { BASE, authorization } from "./connection.js";
import { find, make } from "./dom.js";
import { later, quote, say } from "./language.js";
import { shownValue } from "./local_values.js";

const LISTED = 5;

/** Show the newest documents, if there are any. Nobody is asked for a key: who has given one sees what is his. */
export async function showRecent() {
  const response = await fetch(new URL(`documents?limit=${LISTED}`, BASE), { headers: authorization(), cache: "no-store" }).catch(() => null);
  const { data = [] } = response?.ok ? await response.json().catch(() => ({})) : {};
  find("recent-list").replaceChildren(...data.map(line));
  find("recent").hidden = !data.length;
}

/** A paper to book leads to where it is checked, anything else to what was read. */
function line({ id, filename, state, documents: [first] }) {
  const { VendorName: vendor, InvoiceTotal: total } = first?.fields ?? {};
  const facts = make(
    "span",
    { class: "dots quiet" },
    ...(vendor ? [quote(make("span"), vendor.value)] : []),
    ...(total ? [say(make("span", { class: "number" }), "{value}", { value: later((value) => shownValue("InvoiceTotal", value), total.value) })] : []),
    ...(first?.kind ? [say(make("span"), `state_${state}`)] : []),
  );
  return make("li", {}, quote(make("a", { href: first?.kind ? `#document=${id}:0` : `#document=${id}` }), filename), " ", facts);
}

addEventListener("hashchange", () => {
  if (!find("intake").hidden) showRecent();
});
