// Why a value was read as it was, in the language of the page: the service's sentence in English, its codes with their
// parameters in Spanish. The codes are those of docs/reasons.md.

import { className, language } from "./language.js";

const POSITIONS = { behind: "detrás de", below: "debajo de", beside: "junto a", after: "después de", "right of": "a la derecha de", above: "encima de" };
const AS_CONFIRMED = ["confirmed_invoices", "confirmed_invoice"];

export const SPANISH = {
  looks_like_one: "leído como {kind}: su página lo parece",
  as_confirmed_supplier: "leído como {kind}: como un documento confirmado de su proveedor",
  read_as: "leído como {kind}",
  classed: "clasificado como {type}",
  looks_like_other: "parece {type}: se leen los datos de facturas, recibos y extractos",
  says_no_invoice: "dice que no es una factura",
  title_of_other: "su título es de {type}: se leen los datos de facturas, recibos y extractos",
  no_total: "no tiene un total junto a un importe: no es factura, recibo ni extracto",
  too_few_signs: "tiene poco de factura, recibo o extracto",
  another_document: "en la página {page} empieza otro",
  another_numbered_document: "en la página {page} empieza otro, {number}",
  electronic_wins: "manda la factura electrónica ({format})",
  reading_failed: "ha fallado su lectura",
  first_words_only: "solo se han mirado las primeras {words} palabras",
  numbers_not_read: "no se han buscado los números",
  electronic: "lo dice la factura electrónica ({format})",
  qr_code: "lo dice el código {format} de la página {page}",
  network: "por el aspecto de la página",
  confirmed_invoices: "como en {count} facturas confirmadas",
  confirmed_invoice: "como en una factura confirmada",
  corrected: "corregido por {by}",
  label: "{position} «{label}»",
  its_label: "{position} su etiqueta",
  money_label: "{position} «{label}»",
  below_header: "debajo de su encabezado",
  own_label: "{position} «{label}»",
  own_answer: "lo que responde una frase",
  like_examples: "como en los ejemplos",
  own_place: "por su sitio y su forma",
  date_at_head: "una fecha sin etiqueta al principio de la página",
  day_or_month: "el día y el mes podrían estar cambiados",
  time_beside_date: "una hora junto a la fecha o su etiqueta",
  payment_words: "palabras de una condición de pago",
  account_number: "un número de cuenta cuyos dígitos de control cuadran",
  wrong_account_number: "un número de cuenta cuyos dígitos de control no cuadran",
  vendor_label: "junto a la etiqueta del proveedor",
  prominent_name: "el nombre más destacado",
  prominent_legal_name: "el nombre más destacado con forma jurídica",
  name_with_registry: "el nombre con datos registrales o con una cuenta donde pagar",
  legal_name_of_tax_id: "un nombre con forma jurídica junto al NIF del emisor",
  vendor_block_address: "la dirección junto al proveedor",
  vendor_block_tax_id: "un NIF junto al proveedor",
  customer_label: "junto a la etiqueta del cliente",
  greeting: "el nombre del saludo",
  below_vendor: "un nombre con su dirección debajo del proveedor",
  customer_block_address: "la dirección debajo del nombre del cliente",
  delivery_address: "adonde van los bienes o servicios",
  customer_block_tax_id: "un NIF junto al cliente",
  customer_tax_id_label: "un NIF cuya etiqueta dice que es del cliente",
  other_tax_id: "un NIF aparte que no es del proveedor",
  currency_sign: "el signo junto a los importes",
  currency_named: "la nombra el texto",
  dollar_sign: "un signo de dólar",
  currency_of_places: "por los NIF y los lugares",
  tax_table: "una tabla de impuestos",
  tax_rows: "tipos con sus bases y cuotas",
  rate_makes_amount: "base × tipo = cuota",
  sum_of_lines: "suma de las líneas",
  sum_of_taxes: "suma de las cuotas",
  tax_and_surcharge: "impuesto y recargo",
  rate_makes_tax: "su tipo da la cuota",
  arithmetic: "por aritmética",
  cash_less_change: "efectivo menos cambio",
  total_without_tax: "el total sin su impuesto",
  withholding: "retención",
  surcharge: "recargo de equivalencia",
  only_adds_up_so: "solo así cuadran los importes",
  columns_labelled: "debajo de los encabezados de sus columnas",
  rows_above_total: "filas de texto e importe encima de un total",
  beside_amount: "junto al importe",
  amount_by_price: "importe entre precio",
  not_read: "no se ha podido leer",
  quantity_by_price: "cantidad × precio da el importe",
  in_column: "en su columna",
  movements: "{lines} líneas con fecha e importe bajo el encabezado de movimientos",
  balance_agrees: "el saldo cuadra",
  balance_disagrees: "el saldo no cuadra",
  line_begins: "al principio de su línea",
  behind_booking_date: "detrás de la fecha de la operación",
  last_balance: "el saldo del último movimiento",
  iban: "un IBAN",
  two_dates: "dos fechas al principio del extracto",
  month_of_title: "el mes del título",
};

/** Why a field is as it is; empty where nothing was told. */
export const whyOf = (field) => (language() === "es" ? (field?.reasons ?? []).map(spanish).filter(Boolean).join("; ") : field?.why ?? "");

/** How many confirmed invoices gave a value. */
export function taughtBy(field) {
  const reason = field?.reasons?.find(({ code }) => AS_CONFIRMED.includes(code));
  return reason ? reason.params?.count ?? 1 : 0;
}

function spanish({ code, params }) {
  const said = { ...params };
  for (const name of ["kind", "type"]) if (said[name]) said[name] = className(said[name]).toLocaleLowerCase();
  if (said.position) said.position = POSITIONS[said.position] ?? said.position;
  if (code === "corrected" && said.by === "anybody") said.by = "alguien"; // a service without keys knows no names
  return (SPANISH[code] ?? params.text ?? "").replace(/\{(\w+)\}/g, (_, name) => said[name] ?? "");
}
