// Amounts and dates as people write them in the language of the page, and back to what the service keeps.

import { language } from "./language.js";

const AMOUNTS = [
  "InvoiceTotal", "SubTotal", "TotalTax", "TotalDiscount", "WithholdingAmount", "EquivalenceSurcharge", "AmountDue", "Total",
  "Tip", "OpeningBalance", "ClosingBalance", "Amount", "Base", "UnitPrice", "Balance", "TaxAmount",
];
const NUMBERS = ["WithholdingRate", "Rate", "TaxRate", "Quantity", "Discount"];
const DATES = ["InvoiceDate", "DueDate", "TransactionDate", "PeriodStart", "PeriodEnd", "Date", "ValueDate"];

/** What a field's value is: an amount, a number, a date or a text. */
export function kindOf(name) {
  if (AMOUNTS.includes(name)) return "amount";
  if (NUMBERS.includes(name)) return "number";
  return DATES.includes(name) ? "date" : "text";
}

/** Whether a field is the tax id of somebody. */
export const isTaxId = (name) => name.endsWith("TaxId");

const DECIMAL = /^-?\d+(\.\d+)?$/;
const ISO = /^(\d{4})-(\d\d)-(\d\d)$/;

const formats = new Map(); // one takes longer to make than a thousand numbers to write

function formatOf(digits) {
  const key = `${language()} ${digits}`;
  if (!formats.has(key)) formats.set(key, new Intl.NumberFormat(language(), { minimumFractionDigits: digits, useGrouping: "always" }));
  return formats.get(key);
}

/** A decimal of the service in local form: 1.284,50; as it stands where it is none. */
export function localAmount(value, { least = 2 } = {}) {
  if (!DECIMAL.test(value ?? "")) return value ?? "";
  const digits = (value.split(".")[1] ?? "").length;
  return formatOf(Math.max(least, digits)).format(value); // a text: digits that a float lacks are kept
}

/** An ISO date in local form: 12/03/2026 in Spanish; other languages read the ISO one. */
export function localDate(value) {
  const [, year, month, day] = ISO.exec(value ?? "") ?? [];
  return year && language() === "es" ? `${day}/${month}/${year}` : value ?? "";
}

const TAX_LABEL = /^(?:(?:VAT|NIF|CIF|NIE|DNI|IVA|N\.I\.F\.|C\.I\.F\.)[\s.:/-]*)+(?=(?:.*\d){6})/i;

/** A tax id without the label that was read or chosen with it; a Spanish one is a NIF in Spain, without ES before it. */
export function localTaxId(value) {
  const id = (value ?? "").replace(TAX_LABEL, "");
  return language() === "es" ? id.replace(/^ES[ -]?(?=(?:[ -]?[A-Z0-9]){9}$)/i, "") : id;
}

/** A field's value as people write it. */
export function shownValue(name, value) {
  const kind = kindOf(name);
  if (kind === "amount") return localAmount(value);
  if (kind === "number") return localAmount(value, { least: 0 });
  if (isTaxId(name)) return localTaxId(value);
  return kind === "date" ? localDate(value) : value ?? "";
}

/** The decimal that a text in local form means; null for none. "1.284,50 €", "1284.5", "-3", "1 284,50". */
export function amountOf(text) {
  const digits = text.replace(/[^\d.,'-]/g, "").replaceAll("'", "");
  const at = Math.max(digits.lastIndexOf("."), digits.lastIndexOf(","));
  const isDecimal = at >= 0 && meansDecimals(digits, at);
  const whole = (isDecimal ? digits.slice(0, at) : digits).replace(/[.,]/g, "");
  const value = isDecimal ? `${whole || "0"}.${digits.slice(at + 1)}` : whole;
  return /^-?\d{1,15}(\.\d{1,10})?$/.test(value) ? value.replace(/^(-?)0+(?=\d)/, "$1") : null;
}

/** Whether the last separator of digits begins decimals: of one kind, once, and before three digits only the local one. */
function meansDecimals(digits, at) {
  const separator = digits[at];
  const other = separator === "." ? "," : ".";
  if (digits.indexOf(separator) !== at) return false; // 1.284.500
  if (digits.includes(other)) return true; // 1.284,50
  return digits.length - at - 1 !== 3 || separator === (language() === "es" ? "," : ".");
}

/** The ISO date that a text in local form means; null for none. 12/3/2026, 12-03-26, 2026-03-12. */
export function dateOf(text) {
  const plain = text.trim();
  const [, day, month, year] = /^(\d{1,2})[/.\- ](\d{1,2})[/.\- ](\d{4}|\d\d)$/.exec(plain) ?? [];
  const iso = day ? `${year.length === 2 ? `20${year}` : year}-${month.padStart(2, "0")}-${day.padStart(2, "0")}` : plain;
  if (!ISO.test(iso)) return null;
  const found = new Date(`${iso}T00:00:00Z`);
  return !Number.isNaN(found.getTime()) && found.toISOString().startsWith(iso) ? iso : null; // not 31/02
}

/** The number that a decimal of the service is; null for none. */
export const decimalsOf = (value) => (DECIMAL.test(value ?? "") ? Number(value) : null);

/** The cents of a decimal, for sums that do not drift; null for none. */
export const centsOf = (value) => (DECIMAL.test(value ?? "") ? Math.round(Number(value) * 100) : null);
