"""Electronic invoices of each format, as small as they can be."""

# ruff: noqa: E501  # XML as programs write it

CII = b"""<?xml version="1.0" encoding="UTF-8"?>
<rsm:CrossIndustryInvoice xmlns:rsm="urn:un:unece:uncefact:data:standard:CrossIndustryInvoice:100"
 xmlns:ram="urn:ram" xmlns:udt="urn:udt">
 <rsm:ExchangedDocument><ram:ID>2026/017</ram:ID><ram:TypeCode>380</ram:TypeCode>
  <ram:IssueDateTime><udt:DateTimeString format="102">20260312</udt:DateTimeString></ram:IssueDateTime>
 </rsm:ExchangedDocument>
 <rsm:SupplyChainTradeTransaction>
  <ram:IncludedSupplyChainTradeLineItem>
   <ram:SpecifiedTradeProduct><ram:SellerAssignedID>H-1</ram:SellerAssignedID><ram:Name>Harina</ram:Name></ram:SpecifiedTradeProduct>
   <ram:SpecifiedLineTradeAgreement><ram:NetPriceProductTradePrice><ram:ChargeAmount>29.50</ram:ChargeAmount></ram:NetPriceProductTradePrice></ram:SpecifiedLineTradeAgreement>
   <ram:SpecifiedLineTradeDelivery><ram:BilledQuantity unitCode="H87">40</ram:BilledQuantity></ram:SpecifiedLineTradeDelivery>
   <ram:SpecifiedLineTradeSettlement>
    <ram:ApplicableTradeTax><ram:RateApplicablePercent>10</ram:RateApplicablePercent></ram:ApplicableTradeTax>
    <ram:SpecifiedTradeSettlementLineMonetarySummation><ram:LineTotalAmount>1180.00</ram:LineTotalAmount></ram:SpecifiedTradeSettlementLineMonetarySummation>
   </ram:SpecifiedLineTradeSettlement>
  </ram:IncludedSupplyChainTradeLineItem>
  <ram:ApplicableHeaderTradeAgreement>
   <ram:SellerTradeParty><ram:Name>Aceros del Norte, S.L.</ram:Name>
    <ram:PostalTradeAddress><ram:PostcodeCode>48001</ram:PostcodeCode><ram:LineOne>Gran V\xc3\xada 1</ram:LineOne><ram:CityName>Bilbao</ram:CityName></ram:PostalTradeAddress>
    <ram:SpecifiedTaxRegistration><ram:ID schemeID="FC">12/345</ram:ID></ram:SpecifiedTaxRegistration>
    <ram:SpecifiedTaxRegistration><ram:ID schemeID="VA">ESA58818501</ram:ID></ram:SpecifiedTaxRegistration>
   </ram:SellerTradeParty>
   <ram:BuyerTradeParty><ram:Name>Panader\xc3\xada N\xc3\xba\xc3\xb1ez</ram:Name></ram:BuyerTradeParty>
  </ram:ApplicableHeaderTradeAgreement>
  <ram:ApplicableHeaderTradeSettlement><ram:InvoiceCurrencyCode>EUR</ram:InvoiceCurrencyCode>
   <ram:SpecifiedTradeSettlementPaymentMeans><ram:PayeePartyCreditorFinancialAccount><ram:IBANID>ES91 2100 0418 4502 0005 1332</ram:IBANID></ram:PayeePartyCreditorFinancialAccount></ram:SpecifiedTradeSettlementPaymentMeans>
   <ram:ApplicableTradeTax><ram:CalculatedAmount>118.00</ram:CalculatedAmount><ram:TypeCode>VAT</ram:TypeCode>
    <ram:BasisAmount>1180.00</ram:BasisAmount><ram:RateApplicablePercent>10</ram:RateApplicablePercent></ram:ApplicableTradeTax>
   <ram:SpecifiedTradePaymentTerms><ram:DueDateDateTime><udt:DateTimeString format="102">20260411</udt:DateTimeString></ram:DueDateDateTime></ram:SpecifiedTradePaymentTerms>
   <ram:SpecifiedTradeSettlementHeaderMonetarySummation>
    <ram:TaxBasisTotalAmount>1180.00</ram:TaxBasisTotalAmount><ram:TaxTotalAmount currencyID="EUR">118.00</ram:TaxTotalAmount>
    <ram:GrandTotalAmount>1298.00</ram:GrandTotalAmount><ram:DuePayableAmount>1298.00</ram:DuePayableAmount>
   </ram:SpecifiedTradeSettlementHeaderMonetarySummation>
  </ram:ApplicableHeaderTradeSettlement>
 </rsm:SupplyChainTradeTransaction>
</rsm:CrossIndustryInvoice>"""

UBL = b"""<?xml version="1.0"?>
<CreditNote xmlns="urn:oasis:names:specification:ubl:schema:xsd:CreditNote-2" xmlns:cbc="urn:cbc" xmlns:cac="urn:cac">
 <cbc:ID>CN-7</cbc:ID><cbc:IssueDate>2026-03-12+01:00</cbc:IssueDate><cbc:DocumentCurrencyCode>EUR</cbc:DocumentCurrencyCode>
 <cac:BillingReference><cac:InvoiceDocumentReference><cbc:ID>INV-3</cbc:ID></cac:InvoiceDocumentReference></cac:BillingReference>
 <cac:AccountingSupplierParty><cac:Party>
  <cac:PostalAddress><cbc:StreetName>Main Street 5</cbc:StreetName><cbc:CityName>Dublin</cbc:CityName><cbc:PostalZone>D02</cbc:PostalZone></cac:PostalAddress>
  <cac:PartyTaxScheme><cbc:CompanyID>IE6388047V</cbc:CompanyID></cac:PartyTaxScheme>
  <cac:PartyLegalEntity><cbc:RegistrationName>Acme Ltd</cbc:RegistrationName></cac:PartyLegalEntity></cac:Party></cac:AccountingSupplierParty>
 <cac:TaxTotal><cbc:TaxAmount currencyID="EUR">2.30</cbc:TaxAmount><cac:TaxSubtotal><cbc:TaxableAmount>10.00</cbc:TaxableAmount>
  <cbc:TaxAmount>2.30</cbc:TaxAmount><cac:TaxCategory><cbc:Percent>23</cbc:Percent><cac:TaxScheme><cbc:ID>VAT</cbc:ID></cac:TaxScheme></cac:TaxCategory></cac:TaxSubtotal></cac:TaxTotal>
 <cac:LegalMonetaryTotal><cbc:TaxExclusiveAmount>10.00</cbc:TaxExclusiveAmount><cbc:TaxInclusiveAmount>12.30</cbc:TaxInclusiveAmount><cbc:PayableAmount>12.30</cbc:PayableAmount></cac:LegalMonetaryTotal>
 <cac:CreditNoteLine><cbc:ID>1</cbc:ID><cbc:CreditedQuantity unitCode="C62">2</cbc:CreditedQuantity><cbc:LineExtensionAmount>10.00</cbc:LineExtensionAmount>
  <cac:Item><cbc:Name>Bolt</cbc:Name></cac:Item><cac:Price><cbc:PriceAmount>5.00</cbc:PriceAmount></cac:Price></cac:CreditNoteLine>
</CreditNote>"""


def facturae(invoices: int = 1, total: str = "1198.00") -> bytes:
    """A Facturae 3.2.1 with income tax withheld and an equivalence surcharge."""
    invoice = f"""<Invoice><InvoiceHeader><InvoiceNumber>0017</InvoiceNumber><InvoiceSeriesCode>A</InvoiceSeriesCode></InvoiceHeader>
  <InvoiceIssueData><IssueDate>2026-03-12</IssueDate><InvoiceCurrencyCode>EUR</InvoiceCurrencyCode></InvoiceIssueData>
  <TaxesOutputs><Tax><TaxTypeCode>01</TaxTypeCode><TaxRate>21.00</TaxRate><TaxableBase><TotalAmount>1000.00</TotalAmount></TaxableBase>
   <TaxAmount><TotalAmount>210.00</TotalAmount></TaxAmount><EquivalenceSurcharge>5.20</EquivalenceSurcharge>
   <EquivalenceSurchargeAmount><TotalAmount>52.00</TotalAmount></EquivalenceSurchargeAmount></Tax></TaxesOutputs>
  <TaxesWithheld><Tax><TaxTypeCode>04</TaxTypeCode><TaxRate>15.00</TaxRate><TaxAmount><TotalAmount>150.00</TotalAmount></TaxAmount></Tax></TaxesWithheld>
  <InvoiceTotals><TotalGrossAmountBeforeTaxes>1000.00</TotalGrossAmountBeforeTaxes><TotalTaxOutputs>262.00</TotalTaxOutputs>
   <InvoiceTotal>{total}</InvoiceTotal><TotalExecutableAmount>{total}</TotalExecutableAmount></InvoiceTotals>
  <Items><InvoiceLine><ItemDescription>Asesor\xeda</ItemDescription><Quantity>10.0</Quantity><UnitPriceWithoutTax>100.0</UnitPriceWithoutTax>
   <TotalCost>1000.00</TotalCost><GrossAmount>1000.00</GrossAmount></InvoiceLine></Items></Invoice>"""
    text = f"""<?xml version="1.0" encoding="ISO-8859-1"?>
<fe:Facturae xmlns:fe="http://www.facturae.es/Facturae/2014/v3.2.1/Facturae"><FileHeader><SchemaVersion>3.2.1</SchemaVersion></FileHeader>
 <Parties><SellerParty><TaxIdentification><TaxIdentificationNumber>14126333D</TaxIdentificationNumber></TaxIdentification>
  <Individual><Name>Javier</Name><FirstSurname>Molina</FirstSurname><SecondSurname>Bermejo</SecondSurname>
   <AddressInSpain><Address>Calle Mayor 1</Address><PostCode>28001</PostCode><Town>Madrid</Town><Province>Madrid</Province></AddressInSpain></Individual></SellerParty>
  <BuyerParty><LegalEntity><CorporateName>Ayuntamiento de \xc1vila</CorporateName></LegalEntity></BuyerParty></Parties>
 <Invoices>{invoice * invoices}</Invoices></fe:Facturae>"""
    return text.encode("latin-1")
