"""Labels of bank statements, in Spanish, English, Catalan, French, German, Italian and Portuguese."""

from __future__ import annotations

from backend.invoices.label_match import Vocabulary

# Columns of an account's movements.
COLUMNS = Vocabulary(
    {
        "Date": (
            "fecha", "fecha operacion", "f operacion", "f oper", "fecha oper", "f op", "fecha contable",
            "f contable", "fecha mov", "fecha apunte", "dia", "date", "posting date", "transaction date",
            "trans date", "posted", "date posted", "datum", "buchung", "buchungstag", "buchungsdatum",
            "date operation", "date d'operation", "data", "data operacio", "data mov", "data operazione",
            "data movimento", "data contabile", "data lanc",
        ),
        "ValueDate": (
            "f valor", "fecha valor", "valor", "f val", "fec valor", "value date", "value", "wert", "wertstellung",
            "valuta", "date valeur", "valeur", "date de valeur", "data valor", "data valuta",
        ),
        "Description": (
            "concepto", "descripcion", "movimiento", "movimientos", "detalle", "operacion", "concepte",
            "observaciones", "descripcion del movimiento", "concepto referencia", "description", "details",
            "particulars", "transaction", "transaction details", "transaction description",
            "payment type and details", "narrative", "verwendungszweck", "buchungstext", "vorgang", "umsatz",
            "libelle", "nature de l'operation", "operations", "descrizione", "causale", "descricao",
            "descricao do movimento", "descripcio",
        ),
        "Debit": (
            "cargo", "cargos", "debe", "adeudo", "adeudos", "gastos", "pagos", "salidas", "retiros", "debito",
            "debitos", "debit", "debits", "paid out", "money out", "withdrawal", "withdrawals", "payments", "out",
            "soll", "belastung", "lastschrift", "carrec", "carrecs", "deure", "dare", "uscite", "addebiti",
            "withdrawals debits",
        ),
        "Credit": (
            "abono", "abonos", "haber", "ingreso", "ingresos", "entradas", "depositos", "credito", "creditos",
            "credit", "credits", "paid in", "money in", "deposit", "deposits", "receipts", "in", "haben",
            "gutschrift", "abonament", "abonaments", "avere", "entrate", "accrediti", "deposits credits",
        ),
        "Amount": (
            "importe", "importe eur", "amount", "betrag", "montant", "import", "importo", "valor eur", "montante",
        ),
        "Balance": (
            "saldo", "saldo eur", "saldo disponible", "saldo contable", "balance", "running balance",
            "ledger balance", "kontostand", "solde", "saldo contabilistico", "saldo progressivo",
        ),
    }
)  # fmt: skip

# What stands beside a value.
FACTS = Vocabulary(
    {
        "OpeningBalance": (
            "saldo anterior", "saldo inicial", "saldo de apertura", "saldo al inicio", "saldo previo",
            "saldo inicial del periodo", "saldo periodo anterior", "saldo mes anterior", "saldo extracto anterior",
            "opening balance", "beginning balance", "starting balance", "previous balance",
            "balance brought forward", "brought forward", "balance forward", "start balance",
            "your previous balance", "opening ledger balance", "alter saldo", "alter kontostand", "anfangssaldo",
            "saldovortrag", "solde precedent", "ancien solde", "solde initial", "solde anterieur",
            "saldo iniziale", "saldo inicial em", "saldo precedente",
        ),
        "ClosingBalance": (
            "saldo final", "saldo actual", "nuevo saldo", "saldo de cierre", "saldo al cierre",
            "saldo final del periodo", "saldo a su favor", "saldo resultante", "saldo a fecha",
            "saldo disponible a fecha", "saldo final a", "closing balance", "ending balance", "new balance",
            "your new balance", "end balance", "current balance", "balance carried forward", "carried forward",
            "closing ledger balance", "neuer saldo", "neuer kontostand", "endsaldo", "nouveau solde",
            "solde final", "solde au", "saldo finale", "saldo contabile finale",
        ),
        "AccountHolder": (
            "titular", "titulares", "titular de la cuenta", "nombre del titular", "account holder", "account name",
            "account holders", "name of account", "kontoinhaber", "titulaire", "titulaire du compte",
            "intestatario", "intestazione", "titular da conta", "titular del compte", "customer name", "cliente",
        ),
        "AccountNumber": (
            "iban", "cuenta", "numero de cuenta", "n de cuenta", "n cuenta", "cuenta n", "num cuenta",
            "codigo cuenta", "codigo cuenta cliente", "ccc", "account number", "account no", "account", "acct no",
            "konto", "kontonummer", "konto nr", "n de compte", "numero de compte", "compte n", "numero conto",
            "conto n", "conto corrente n", "n da conta", "numero da conta", "conta", "num de compte",
        ),
        "Period": (
            "periodo", "periodo del extracto", "extracto del", "movimientos del", "statement period", "period",
            "period covered", "for the period", "statement from", "zeitraum", "periode", "du",
            "periodo di riferimento", "desde", "fecha desde", "from",
        ),
        "PeriodEnd": (
            "hasta", "fecha hasta", "to", "al", "au", "bis",
        ),
    }
)  # fmt: skip
TITLES = Vocabulary(
    {
        "title": (
            "extracto de cuenta", "extracto", "extracto bancario", "extracto de movimientos", "extracto mensual",
            "movimientos de cuenta", "movimientos de la cuenta", "ultimos movimientos", "consulta de movimientos",
            "extracto integrado", "bank statement", "account statement", "statement of account", "account summary",
            "consolidated statement", "current account statement", "your statement", "checking account statement",
            "monthly statement", "statement", "kontoauszug", "releve de compte", "releve bancaire", "extrato de conta",
            "extrato bancario", "extrato", "estratto conto", "extracte de compte", "extracte",
        )
    }
)  # fmt: skip
