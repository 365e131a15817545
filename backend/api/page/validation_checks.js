// What can be checked of a document while it is typed: the same equations and check digits as the service's, which has
// the last word as soon as a value is sent.

import { centsOf, decimalsOf } from "./local_values.js";

const SLACK = 2; // cents
const LETTERS = "TRWAGMYFPDXBNJZSQVHLCKE";

/** Equations that do not hold: [{equation, expected, printed}]; null where there is nothing to add up. `fields` as the wire has them. */
export function differences(fields) {
  const found = [...ofTotal(fields), ...ofTaxes(fields)];
  return found.length ? found.filter(({ far }) => far).map(({ equation, expected, printed }) => ({ equation, expected, printed })) : null;
}

const compared = (equation, expected, printed, slack = SLACK) => ({
  equation,
  expected: (expected / 100).toFixed(2),
  printed: (printed / 100).toFixed(2),
  far: Math.abs(expected - printed) > slack,
});

function* ofTotal(fields) {
  const of = (name) => centsOf(fields[name]?.value);
  const [base, tax, total] = [of("SubTotal"), of("TotalTax"), of("InvoiceTotal") ?? of("Total")];
  if (base === null || tax === null || total === null) return;
  const sign = base < 0 ? -1 : 1;
  const more = [["WithholdingAmount", -1], ["TotalDiscount", -1], ["Tip", 1], ["EquivalenceSurcharge", 1]];
  const parts = more.map(([name, by]) => (of(name) === null ? null : by * sign * Math.abs(of(name)))).filter((part) => part !== null);
  let sums = [base + tax];
  for (const part of parts) sums = [...sums, ...sums.map((sum) => sum + part)];
  const near = sums.find((sum) => Math.abs(sum - total) <= SLACK);
  yield compared("SubTotal + TotalTax = InvoiceTotal", near ?? sums[0], total);
}

function* ofTaxes(fields) {
  const rows = fields.TaxDetails?.value ?? [];
  for (const { Rate, Base, Amount } of rows) {
    const [rate, base, amount] = [decimalsOf(Rate?.value), centsOf(Base?.value), centsOf(Amount?.value)];
    if (rate !== null && base !== null && amount !== null) yield compared(`Base x Rate (${rate} %) = Amount`, (base * rate) / 100, amount);
  }
  const amounts = rows.map(({ Amount }) => centsOf(Amount?.value));
  const tax = centsOf(fields.TotalTax?.value);
  if (!amounts.length || amounts.includes(null) || tax === null) return;
  const sum = amounts.reduce((one, other) => one + other, 0);
  const without = sum - (centsOf(fields.EquivalenceSurcharge?.value) ?? 0);
  yield compared("sum of TaxDetails = TotalTax", Math.abs(without - tax) <= SLACK ? without : sum, tax);
}

/** Whether check digits are right; null for what has none that are known here. */
export function checkDigits(name, value) {
  const plain = value.toUpperCase().replace(/[\s.\-/]/g, "");
  if (name === "IBAN") return /^[A-Z]{2}\d\d[A-Z\d]{10,30}$/.test(plain) ? remainder97(plain) === 1 : null;
  if (name !== "VendorTaxId" && name !== "CustomerTaxId") return null;
  return spanishId(plain.replace(/^ES/, ""));
}

function remainder97(iban) {
  const digits = (iban.slice(4) + iban.slice(0, 4)).replace(/[A-Z]/g, (letter) => letter.charCodeAt(0) - 55);
  return [...digits].reduce((rest, digit) => (rest * 10 + Number(digit)) % 97, 0);
}

function spanishId(id) {
  const [, first, digits, last] = /^([A-Z]?)(\d{7,8})([A-Z]|)$/.exec(id) ?? [];
  if (digits === undefined) return null;
  if (!first && digits.length === 8 && last) return LETTERS[Number(digits) % 23] === last;
  if ("XYZ".includes(first) && first && digits.length === 7 && last) return LETTERS[Number("XYZ".indexOf(first) + digits) % 23] === last;
  if (!/[A-HJNP-SU-W]/.test(first) || digits.length + last.length !== 8) return null;
  const seven = [...digits.slice(0, 7)].map(Number);
  const sum = seven.reduce((all, digit, at) => all + (at % 2 ? digit : Math.floor((2 * digit) / 10) + ((2 * digit) % 10)), 0);
  const control = (10 - (sum % 10)) % 10;
  return [String(control), "JABCDEFGHI"[control]].includes(digits[7] ?? last);
}
